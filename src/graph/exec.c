#include "graph/exec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "graph/build.h"
#include "graph/exec_parts.h"

static const struct op_code *code_reference(const struct op *op)
{
    return op->reference;
}

static const struct op_code *code_cpu(const struct op *op)
{
    return op_cpu(op);
}

static struct optimizer_state *state_of(const struct exec *exec)
{
    const struct store *store = exec->options.store;
    return (struct optimizer_state *)((char *)store->memory + store->layout.state);
}

void *exec_address(const struct exec *exec, int id)
{
    const struct value *value = &exec->program->values[id];
    const struct store *store = exec->options.store;
    switch (value->home) {
    case HOME_ARENA: return (char *)exec->arena + exec->plan.offsets[id];
    case HOME_PARAM: {
        const struct store_slot *slot = &store->layout.params[value->index];
        assert(!value->low || slot->low != STORE_NONE);
        return (char *)store->memory + (value->low ? slot->low : slot->master);
    }
    case HOME_IMAGES: return exec->batch.images ? (char *)exec->batch.images + value->offset : NULL;
    case HOME_TARGETS: return exec->batch.labels ? (char *)exec->batch.labels + value->offset : NULL;
    case HOME_RESULT: return exec->results + value->offset;
    }
    return NULL;
}

/* The call's code for its phase. */
static enum status (*code_run(const struct op_code *code, enum phase phase))(const struct call *)
{
    switch (phase) {
    case PHASE_FORWARD: return code->forward;
    case PHASE_BACKWARD: return code->backward;
    case PHASE_BACKWARD_DATA: return code->backward_data;
    case PHASE_BACKWARD_PARAMS: return code->backward_params;
    case PHASE_UPDATE: return code->update;
    case PHASE_COUNT: break;
    }
    return NULL;
}

/* Data for a tensor that the phase touches. Tensors of the batch get theirs when there is one. */
static void resolve(struct exec *exec, const struct instruction *at, int id, struct tensor *tensor)
{
    if (id < 0) return;
    if (!ids_have(at->reads, at->read_count, id) && !ids_have(at->writes, at->write_count, id)) return;
    const struct value *value = &exec->program->values[id];
    if (value->home == HOME_IMAGES || value->home == HOME_TARGETS)
        *array_push(exec->inputs, exec->input_count) = (struct input){tensor, value->home, value->offset};
    else
        tensor->data = exec_address(exec, id);
}

/* A copy in the exec's own memory, with data. */
static struct tensor *place_tensors(struct exec *exec, const struct instruction *at,
                                    const struct tensor *from, const int *ids, int count)
{
    struct tensor *to = exec->tensors + exec->tensor_count;
    exec->tensor_count += count;
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        if (ids) resolve(exec, at, ids[i], &to[i]);
    }
    return to;
}

static void step_open(struct exec *exec, int i, struct call_storage *storage)
{
    struct step *step = &exec->steps[i];
    const struct instruction *at = step->at = &exec->program->instructions[i];
    if (!at->op) return;
    step->run = code_run(exec->engines.code_of(at->op), at->phase);
    assert(step->run);
    struct call *call = &step->call;
    *call = program_call(exec->program, i, storage);
    call->x = place_tensors(exec, at, call->x, at->x, at->x_count);
    call->d_x = place_tensors(exec, at, call->d_x, at->d_x, at->x_count);
    call->params = place_tensors(exec, at, call->params, at->params, at->param_count);
    call->d_params = place_tensors(exec, at, call->d_params, at->d_params, at->param_count);
    call->saved = place_tensors(exec, at, call->saved, at->saved, at->saved_count);
    resolve(exec, at, at->y, &call->y);
    resolve(exec, at, at->d_y, &call->d_y);
    call->workspace = at->workspace >= 0 ? exec_address(exec, at->workspace) : NULL;
    call->engine = at->engine >= 0 ? exec->engines.engine[at->engine] : NULL;
    call->loss_scale = &exec->scale;
    if (!exec->program->training) return;
    step->random = (struct op_random){.seed = exec->options.seed, .slice = (uint32_t)at->slice,
                                      .layer = (uint32_t)at->node};
    call->random = &step->random;
}

static void steps_open(struct exec *exec)
{
    const struct program *program = exec->program;
    size_t tensors = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        tensors += (size_t)(2 * at->x_count + 2 * at->param_count + at->saved_count);
    }
    exec->tensors = memory_new(tensors, sizeof *exec->tensors);
    exec->steps = memory_new((size_t)program->count, sizeof *exec->steps);
    exec->times = memory_new((size_t)program->count, sizeof *exec->times);
    struct call_storage *storage = memory_new(1, sizeof *storage);
    for (int i = 0; i < program->count; i++) step_open(exec, i, storage);
    free(storage);
}

static struct optimizer_param param_open(const struct exec *exec, int p)
{
    const struct store *store = exec->options.store;
    const struct store_slot *slot = &store->layout.params[p];
    const struct parameter *param = &store->graph->params[p];
    char *memory = store->memory;
    bool weight = param->spec.role == ROLE_WEIGHT;
    struct optimizer_param out = {
        .count = shape_count(param->spec.shape),
        .master = (float *)(memory + slot->master),
        .gradient = exec_address(exec, exec->program->gradients[p]),
        .average = slot->average == STORE_NONE ? NULL : (float *)(memory + slot->average),
        .low = slot->low == STORE_NONE ? NULL : memory + slot->low,
        .low_dtype = store->layout.low,
        .decay = weight || exec->options.decay_norm_bias,
        .adapt = weight,
    };
    for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++)
        out.slots[s] = slot->slots[s] == STORE_NONE ? NULL : (float *)(memory + slot->slots[s]);
    return out;
}

static void params_open(struct exec *exec)
{
    const struct graph *graph = exec->program->graph;
    exec->params = memory_new((size_t)graph->param_count, sizeof *exec->params);
    for (int p = 0; p < graph->param_count; p++)
        if (exec->program->gradients[p] >= 0) exec->params[exec->param_count++] = param_open(exec, p);
    struct optimizer_state *state = state_of(exec);
    if (state->scaler.scale == 0) state->scaler = scaler_start(&exec->options.scaling);
    exec->state = *state;
}

static enum status memory_open(struct exec *exec)
{
    const struct device_backend *backend = exec->device->backend;
    const struct exec_options *options = &exec->options;
    exec->results = backend->host_allocate(exec->device, (size_t)exec->program->results_bytes);
    if (!exec->results) return fail(NO_DEVICE, "no host memory for the results of a step");
    if (options->arena && options->arena_bytes >= exec->plan.arena_bytes) {
        exec->arena = options->arena;
        return OK;
    }
    exec->arena = backend->allocate(exec->device, (size_t)exec->plan.arena_bytes);
    if (!exec->arena) {
        char text[TEXT_BYTES];
        return fail(NO_DEVICE, "a batch of %d needs %s of working memory, which the device does not have",
                    exec->program->batch, text_bytes((uint64_t)exec->plan.arena_bytes, text));
    }
    exec->arena_bytes = exec->plan.arena_bytes;
    return OK;
}

static enum status exec_make(struct exec *exec)
{
    const struct exec_options *options = &exec->options;
    TRY(engines_prepare(exec->program, options->reference ? code_reference : code_cpu, &exec->engines));
    TRY(plan_make(exec->program, !options->separate, options->plan_seconds, &exec->plan));
    exec->planned = true;
    TRY(memory_open(exec));
    steps_open(exec);
    if (exec->program->training) params_open(exec);
    return OK;
}

enum status exec_open(struct program *program, const struct exec_options *options, struct exec **exec)
{
    if (options->device->backend->kind != DEVICE_CPU)
        return fail(NO_DEVICE, "this build cannot run programs on %s", options->device->backend->name);
    struct exec *made = memory_new(1, sizeof *made);
    made->options = *options;
    made->device = options->device;
    made->program = program;
    made->scale = 1;
    enum status status = exec_make(made);
    if (status != OK) exec_close(made);
    else *exec = made;
    return status;
}

void exec_close(struct exec *exec)
{
    if (!exec) return;
    const struct device_backend *backend = exec->device->backend;
    if (exec->arena_bytes > 0) backend->release(exec->device, exec->arena, (size_t)exec->arena_bytes);
    if (exec->results)
        backend->host_release(exec->device, exec->results, (size_t)exec->program->results_bytes);
    if (exec->planned) plan_free(&exec->plan);
    engines_release(&exec->engines);
    free(exec->steps);
    free(exec->tensors);
    free(exec->inputs);
    free(exec->params);
    free(exec->times);
    free(exec);
}

void exec_bind(struct exec *exec, const struct exec_batch *batch)
{
    exec->batch = *batch;
    for (int i = 0; i < exec->input_count; i++) {
        const struct input *input = &exec->inputs[i];
        const void *base = input->home == HOME_IMAGES ? batch->images : batch->labels;
        input->tensor->data = (char *)base + input->offset;
    }
}

enum status exec_step(struct exec *exec, int i)
{
    struct step *step = &exec->steps[i];
    enum status status = step->run(&step->call);
    if (status != OK) return fail(status, "%s failed", step->at->name);
    return OK;
}

static void run_optimizer(struct exec *exec, double lr, double momentum)
{
    const struct exec_options *options = &exec->options;
    optimizer_step(options->optimizer, &options->optimizer_settings, &options->scaling, exec->params,
                   exec->param_count, lr, momentum, state_of(exec));
}

static int64_t nanoseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static enum status run_instruction(struct exec *exec, int i, double lr, double momentum)
{
    const struct instruction *at = exec->steps[i].at;
    if (!at->op) {
        run_optimizer(exec, lr, momentum);
        return OK;
    }
    if (at->phase == PHASE_UPDATE && state_of(exec)->skipped) return OK;
    return exec_step(exec, i);
}

static void average_one(double decay, enum dtype dtype, void *average, const void *now, int64_t count)
{
    if (dtype == F32) {
        float *to = average;
        const float *from = now;
        for (int64_t i = 0; i < count; i++) to[i] = (float)(decay * to[i] + (1 - decay) * from[i]);
    } else {
        memcpy(average, now, (size_t)count * dtype_bytes(dtype));
    }
}

static void average_statistics(const struct exec *exec)
{
    const struct store *store = exec->options.store;
    char *memory = store->memory;
    for (int p = 0; p < store->layout.count; p++) {
        const struct store_slot *slot = &store->layout.params[p];
        const struct op_param *spec = &store->graph->params[p].spec;
        if (spec->role != ROLE_STATISTIC || slot->average == STORE_NONE) continue;
        average_one(exec->options.optimizer_settings.ema, spec->dtype, memory + slot->average,
                    memory + slot->master, shape_count(spec->shape));
    }
}

static void count_step(struct exec *exec)
{
    struct optimizer_state *state = state_of(exec);
    state->step++;
    exec->scale = state->scaler.scale;
    for (int i = 0; i < exec->program->count; i++) exec->steps[i].random.step = (uint64_t)state->step;
}

enum status exec_run(struct exec *exec, const struct exec_batch *batch, double lr, double momentum)
{
    bool training = exec->program->training;
    exec_bind(exec, batch);
    if (training) count_step(exec);
    for (int i = 0; i < exec->program->count; i++) {
        int64_t begin = exec->measure ? nanoseconds_now() : 0;
        TRY(run_instruction(exec, i, lr, momentum));
        if (exec->measure) exec->times[i] = nanoseconds_now() - begin;
    }
    if (!training) return OK;
    if (!state_of(exec)->skipped) average_statistics(exec);
    exec->state = *state_of(exec);
    return OK;
}

const struct plan *exec_plan(const struct exec *exec)
{
    return &exec->plan;
}

void *exec_arena(const struct exec *exec)
{
    return exec->arena;
}

int64_t exec_arena_bytes(const struct exec *exec)
{
    return exec->arena_bytes;
}

static const void *result_of(const struct exec *exec, int value)
{
    return value < 0 ? NULL : exec_address(exec, value);
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

const struct optimizer_state *exec_state(const struct exec *exec)
{
    return &exec->state;
}

void exec_fetch(const struct exec *exec, int id, int64_t first, int64_t count, float *host)
{
    const struct value *value = &exec->program->values[id];
    const char *from = (const char *)exec_address(exec, id) + first * (int64_t)dtype_bytes(value->dtype);
    if (dtype_is_float(value->dtype))
        dtype_convert(F32, host, value->dtype, from, (size_t)count);
    else
        for (int64_t i = 0; i < count; i++) host[i] = (float)dtype_get(value->dtype, from, i);
}

enum status exec_value(const struct exec *exec, int value, float *host)
{
    assert(exec->options.separate);
    exec_fetch(exec, value, 0, shape_count(exec->program->values[value].shape), host);
    return OK;
}

enum status exec_gradient(const struct exec *exec, int param, float *host)
{
    int value = exec->program->gradients[param];
    assert(value >= 0);
    int64_t count = shape_count(exec->program->values[value].shape);
    exec_fetch(exec, value, 0, count, host);
    for (int64_t i = 0; i < count; i++) host[i] /= exec->scale;
    return OK;
}

void exec_measure(struct exec *exec, bool on)
{
    exec->measure = on;
}

const int64_t *exec_times(const struct exec *exec)
{
    return exec->times;
}
