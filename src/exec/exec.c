#include "exec/exec.h"

#include <assert.h>
#include <stdlib.h>

#include "base/align.h"
#include "base/memory.h"
#include "exec/exec_parts.h"

const char *slot_input(const struct exec_slot *slot, enum value_home home)
{
    if (home == HOME_FLAGS) return (const char *)slot->exchange->flags;
    if (home == HOME_IMAGES) return slot->images ? slot->images : slot->batch.images;
    return slot->labels ? slot->labels : slot->batch.labels;
}

void *exec_address(const struct exec *exec, const struct exec_slot *slot, int id)
{
    const struct value *value = &exec->program->values[id];
    const struct store *store = exec->options.store;
    switch (value->home) {
    case HOME_ARENA:
    case HOME_PART: return (char *)exec->arena + exec->compiled->plan.offsets[id];
    case HOME_PARAM: {
        bool own = value->index < store->layout.count;
        int index = own ? value->index : value->index - store->layout.count;
        if (!own) store = exec->options.teacher;
        const struct store_slot *param = &store->layout.params[index];
        assert(!value->low || param->low != STORE_NONE);
        return (char *)store->memory + (value->low ? param->low : param->master);
    }
    case HOME_IMAGES:
    case HOME_FLAGS:
    case HOME_TARGETS: return slot ? (char *)slot_input(slot, value->home) + value->offset : NULL;
    case HOME_RESULT: return exec->results + value->offset;
    case HOME_HOST: return (char *)exec->host + value->offset;
    case HOME_MAIL: {
        struct comm *stages = exec->options.stages;
        return (char *)stages->exchange->place(stages, value->index) + value->offset;
    }
    }
    return NULL;
}

/* Memory. */

/* In words, with a table of who holds what. */
static void describe_shortage(const struct exec *exec, int64_t bytes, const char *what, struct text *words)
{
    char needs[TEXT_BYTES], has[TEXT_BYTES];
    size_t left, total;
    struct text in_use = {0};
    exec->device->backend->memory.info(exec->device, &left, &total);
    device_memory_in_use(exec->device, &in_use);
    text_add(words, "a batch of %d needs %s of %s, but the device has only %s free; a smaller batch needs "
             "less%s%s", exec->program->batch, text_bytes((uint64_t)bytes, needs), what,
             text_bytes(left, has), in_use.data ? "; it holds\n" : "", in_use.data ? in_use.data : "");
    text_free(&in_use);
}

static enum status memory_taken(struct exec *exec, void *taken, int64_t bytes, const char *what,
                                struct text *shortage, void *memory)
{
    if (taken) {
        *(void **)memory = taken;
        return OK;
    }
    struct text words = {0};
    describe_shortage(exec, bytes, what, shortage ? shortage : &words);
    if (words.data) fail(NO_DEVICE, "%s", words.data);
    text_free(&words);
    return NO_DEVICE;
}

static enum status device_memory(struct exec *exec, int64_t bytes, const char *what, struct text *shortage,
                                 void *memory)
{
    void *taken = device_allocate(exec->device, (size_t)bytes, what);
    return memory_taken(exec, taken, bytes, what, shortage, memory);
}

static enum status exchange_memory(struct exec *exec, int64_t bytes, struct text *shortage, void *memory)
{
    static const char words[] = "not enough host memory for the data that a step exchanges with the device";
    void *taken = device_host_allocate(exec->device, (size_t)bytes, "results", NULL);
    if (taken) {
        *(void **)memory = taken;
        return OK;
    }
    if (!shortage) return fail(NO_DEVICE, "%s", words);
    text_add(shortage, "%s", words);
    return NO_DEVICE;
}

static enum status host_open(struct exec *exec, struct text *shortage)
{
    size_t bytes = (size_t)exec->program->host_bytes;
    char words[TEXT_BYTES];
    if (bytes == 0) return OK;
    exec->host = device_host_allocate(exec->device, bytes, "activations", &exec->pinned);
    if (exec->host) return OK;
    text_bytes(bytes, words);
    if (!shortage) return fail(NO_DEVICE, "not enough host memory for %s of offloaded activations", words);
    text_add(shortage, "not enough host memory for %s of offloaded activations", words);
    return NO_DEVICE;
}

static bool borrow_batch(struct exec_slot *slot, const struct program *program, const struct exec *lender,
                         int index)
{
    if (!lender || lender->program->images_bytes < program->images_bytes ||
        lender->program->targets_bytes < program->targets_bytes)
        return false;
    slot->images = lender->slots[index].images;
    slot->labels = lender->slots[index].labels;
    return slot->borrowed = true;
}

static enum status slot_open(struct exec *exec, int index, const struct exec_memory *memory)
{
    const struct program *program = exec->program;
    struct exec_slot *slot = &exec->slots[index];
    struct text *shortage = memory->shortage;
    TRY(exchange_memory(exec, sizeof *slot->exchange, shortage, &slot->exchange));
    *slot->exchange = (struct exec_exchange){.scale = 1, .flags[FLAG_PRESENT] = 1};
    slot->results = exec->results;
    if (!exec->device->waits) return OK;
    if (!exec->options.results_stay)
        TRY(exchange_memory(exec, program->results_bytes, shortage, &slot->results));
    if (borrow_batch(slot, program, memory->lender, index)) return OK;
    TRY(device_memory(exec, program->images_bytes, "images", shortage, &slot->images));
    if (program->targets_bytes == 0) return OK;
    return device_memory(exec, program->targets_bytes, "labels", shortage, &slot->labels);
}

bool exec_shares_arena(const struct exec *exec)
{
    return exec->program->flags_sum >= 0 && exec->options.replicas->exchange->share;
}

static enum status arena_open(struct exec *exec, const struct exec_memory *memory)
{
    int64_t bytes = exec->compiled->plan.arena_bytes;
    if (memory->lender && memory->lender->arena_bytes >= bytes) {
        exec->arena = memory->lender->arena;
        exec->lent_bytes = memory->lender->arena_bytes;
        exec->lent_used = bytes;
        return OK;
    }
    if (bytes < memory->arena_least) bytes = memory->arena_least;
    const char *what = "working memory";
    void *taken = exec_shares_arena(exec) ? device_allocate_shared(exec->device, (size_t)bytes, what)
                                          : device_allocate(exec->device, (size_t)bytes, what);
    TRY(memory_taken(exec, taken, bytes, what, memory->shortage, &exec->arena));
    exec->arena_bytes = bytes;
    return OK;
}

void *exec_behind(const struct exec *exec, int64_t bytes)
{
    int64_t begin = (int64_t)align_up((size_t)exec->lent_used, PLAN_ALIGNMENT);
    return begin + bytes <= exec->lent_bytes ? (char *)exec->arena + begin : NULL;
}

static enum status results_open(struct exec *exec, struct text *shortage)
{
    int64_t bytes = exec->program->results_bytes;
    if (exec->options.results_stay) exec->results = exec_behind(exec, bytes);
    exec->results_lent = exec->results;
    if (!exec->results_lent) return device_memory(exec, bytes, "results", shortage, &exec->results);
    exec->lent_used = exec->results + bytes - (char *)exec->arena;
    return OK;
}

static enum status memory_open(struct exec *exec, const struct exec_memory *memory)
{
    struct text *shortage = memory->shortage;
    TRY(arena_open(exec, memory));
    TRY(results_open(exec, shortage));
    TRY(device_memory(exec, sizeof *exec->scale, "numbers", shortage, &exec->scale));
    float one = 1;
    TRY(exec->device->backend->transfers.upload(exec->device, 0, exec->scale, &one, sizeof one));
    TRY(exec->device->backend->synchronize(exec->device));
    for (int s = 0; s < exec->depth; s++) TRY(slot_open(exec, s, memory));
    return host_open(exec, shortage);
}

struct exec *exec_prepare(const struct compiled *compiled, const struct exec_options *options)
{
    struct exec *made = memory_new(1, sizeof *made);
    made->options = *options;
    made->device = options->device;
    made->compiled = compiled;
    made->program = &compiled->program;
    made->depth = options->device->waits ? EXEC_SLOTS : 1;
    return made;
}

enum status exec_place(struct exec *exec, const struct exec_memory *memory)
{
    TRY(memory_open(exec, memory));
    steps_open(exec);
    return exec->program->training ? update_open(exec, memory->shortage) : OK;
}

enum status exec_open(const struct compiled *compiled, const struct exec_options *options,
                      struct exec **exec)
{
    struct exec *made = exec_prepare(compiled, options);
    enum status status = exec_place(made, &(struct exec_memory){0});
    if (status != OK) exec_close(made);
    else *exec = made;
    return status;
}

static void captured_close(struct exec *exec, struct exec_slot *slot)
{
    if (slot->captured) exec->device->backend->capture.free(slot->captured);
    slot->captured = NULL;
}

void exec_capture_anew(struct exec *exec)
{
    for (int s = 0; s < exec->depth; s++) captured_close(exec, &exec->slots[s]);
}

static void slot_close(struct exec *exec, struct exec_slot *slot)
{
    const struct program *program = exec->program;
    captured_close(exec, slot);
    if (slot->borrowed) slot->images = slot->labels = NULL;
    if (slot->images) device_release(exec->device, slot->images, (size_t)program->images_bytes);
    if (slot->labels) device_release(exec->device, slot->labels, (size_t)program->targets_bytes);
    if (slot->results && slot->results != exec->results)
        device_host_release(exec->device, slot->results, (size_t)program->results_bytes);
    if (slot->glimpse) device_host_release(exec->device, slot->glimpse, glimpse_bytes(exec));
    if (slot->exchange) device_host_release(exec->device, slot->exchange, sizeof *slot->exchange);
}

void exec_close(struct exec *exec)
{
    if (!exec) return;
    if (exec->started > exec->collected) exec->device->backend->synchronize(exec->device);
    if (exec->updates) exec->update_code->close(&exec->update);
    matrix_sharing_close(exec->sharing);
    for (int s = 0; s < exec->depth; s++) slot_close(exec, &exec->slots[s]);
    if (exec->exchanges) exec->options.replicas->exchange->share(exec->options.replicas, NULL, 0);
    if (exec->arena_bytes > 0) device_release(exec->device, exec->arena, (size_t)exec->arena_bytes);
    if (exec->results && !exec->results_lent)
        device_release(exec->device, exec->results, (size_t)exec->program->results_bytes);
    if (exec->scale) device_release(exec->device, exec->scale, sizeof *exec->scale);
    if (exec->host) device_host_release(exec->device, exec->host, (size_t)exec->program->host_bytes);
    free(exec->steps);
    free(exec->tensors);
    free(exec->inputs);
    free(exec->params);
    free(exec->first_squares);
    free(exec->averages);
    free(exec->times);
    free(exec->begins);
    free(exec);
}

/* Measurements, and results. */

const struct plan *exec_plan(const struct exec *exec)
{
    return &exec->compiled->plan;
}

void *exec_arena(const struct exec *exec)
{
    return exec->arena;
}

int exec_depth(const struct exec *exec)
{
    return exec->depth;
}

static const void *result_of(const struct exec *exec, int value)
{
    if (value < 0 || !exec->last) return NULL;
    return (const char *)exec->last->results + exec->program->values[value].offset;
}

const float *exec_losses(const struct exec *exec)
{
    return result_of(exec, exec->program->loss);
}

const int32_t *exec_ranks(const struct exec *exec)
{
    return result_of(exec, exec->program->rank);
}

const float *exec_logits(const struct exec *exec)
{
    return result_of(exec, exec->program->logits);
}

const float *exec_results(const struct exec *exec)
{
    return (const float *)(exec->results + exec->program->values[exec->program->logits].offset);
}

static const struct exec_exchange *exchange_of(const struct exec *exec)
{
    return (exec->last ? exec->last : &exec->slots[0])->exchange;
}

const struct optimizer_state *exec_state(const struct exec *exec)
{
    return &exchange_of(exec)->state;
}

enum status exec_fetch(const struct exec *exec, int id, int64_t first, int64_t count, float *host)
{
    const struct device_backend *backend = exec->device->backend;
    const struct value *value = &exec->program->values[id];
    size_t bytes = (size_t)count * dtype_bytes(value->dtype);
    const char *from = exec_address(exec, exec->last, id);
    from += first * (int64_t)dtype_bytes(value->dtype);
    void *stored = memory_new(bytes, 1);
    enum status status = backend->transfers.download(exec->device, 0, stored, from, bytes);
    if (status == OK) status = backend->synchronize(exec->device);
    if (status == OK && dtype_is_float(value->dtype))
        dtype_convert(F32, host, value->dtype, stored, (size_t)count);
    else
        for (int64_t i = 0; status == OK && i < count; i++)
            host[i] = (float)dtype_get(value->dtype, stored, i);
    free(stored);
    return status;
}

enum status exec_value(const struct exec *exec, int value, float *host)
{
    assert(exec->compiled->plan.separate);
    return exec_fetch(exec, value, 0, shape_count(exec->program->values[value].shape), host);
}

enum status exec_gradient(const struct exec *exec, int param, float *host)
{
    int value = exec->program->gradients[param];
    assert(value >= 0);
    int64_t count = shape_count(exec->program->values[value].shape);
    float *stored = memory_new((size_t)count, sizeof *stored);
    enum status status = exec_fetch(exec, value, 0, count, stored);
    if (status == OK) store_to_torch(exec->options.store, param, stored, host);
    float scale = exchange_of(exec)->scale;
    for (int64_t i = 0; status == OK && i < count; i++) host[i] /= scale;
    free(stored);
    return status;
}

void exec_measure(struct exec *exec, bool on)
{
    exec->measure = on;
}

const int64_t *exec_times(const struct exec *exec)
{
    return exec->times;
}

const int64_t *exec_begins(const struct exec *exec)
{
    return exec->begins;
}

const char *exec_algorithm(const struct exec *exec, int instruction)
{
    const struct call *call = &exec->steps[instruction].call;
    bool named = call->kernel_plan && exec->compiled->kernel_plans.options.code_of(call->op)->variants;
    return named ? call->kernel_plan->name : NULL;
}
