/* exec_run.c: runs a step: copies a batch to the device, queues the instructions or launches their captured
 * graph, and collects the results. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/compare.h"
#include "compile/parallel/stage_mail.h"
#include "exec/exec_checks.h"
#include "exec/exec_parts.h"

/* Events of a slot, and of a run's begin and end on other streams; then one for each instruction. */
enum {
    EVENT_UPLOADED,
    EVENT_DONE = EVENT_UPLOADED + EXEC_SLOTS,
    EVENT_FORK = EVENT_DONE + EXEC_SLOTS,
    EVENT_JOIN,
    EVENT_STEPS,
};

void exec_bind(struct exec *exec, const struct exec_slot *slot)
{
    for (int i = 0; i < exec->input_count; i++) {
        const struct exec_input *input = &exec->inputs[i];
        input->tensor->data = exec_address(exec, slot, input->value);
    }
    exec->update.rates = &slot->exchange->rates;
}

static enum status copy_run(struct exec *exec, const struct instruction *at)
{
    const struct device_backend *backend = exec->device->backend;
    void *from = exec_address(exec, NULL, operand_x(at, 0)), *to = exec_address(exec, NULL, operand_y(at));
    size_t bytes = (size_t)exec->program->values[operand_y(at)].bytes;
    if (at->kind == INSTRUCTION_COPY_TO_HOST)
        return backend->transfers.download(exec->device, at->stream, to, from, bytes);
    return backend->transfers.upload(exec->device, at->stream, to, from, bytes);
}

static enum status collective_run(struct exec *exec, const struct instruction *at)
{
    struct comm *comm = at->among_stages ? exec->options.stages : exec->options.replicas;
    const struct exchange_backend *exchange = comm->exchange;
    const void *from = exec_address(exec, NULL, operand_x(at, 0));
    void *to = exec_address(exec, NULL, operand_y(at));
    void *stream = exec->device->backend->stream(exec->device, at->stream);
    const struct value *sent = &exec->program->values[operand_x(at, 0)];
    size_t bytes = (size_t)sent->bytes;
    switch (at->kind) {
    case INSTRUCTION_ALL_TO_ALL:
        return exchange->all_to_all(comm, from, to, bytes / (size_t)comm->count, stream);
    case INSTRUCTION_ALL_GATHER: return exchange->all_gather(comm, from, to, bytes, stream);
    case INSTRUCTION_ALL_REDUCE: {
        const struct comm_numbers numbers = {from, (size_t)shape_count(sent->shape), sent->dtype};
        return exchange->all_reduce(comm, &numbers, to, stream);
    }
    case INSTRUCTION_OP:
    case INSTRUCTION_UPDATE:
    case INSTRUCTION_MEASURE:
    case INSTRUCTION_SEND:
    case INSTRUCTION_RECEIVE:
    case INSTRUCTION_COPY_TO_HOST:
    case INSTRUCTION_COPY_FROM_HOST: break;
    }
    return FAILED;
}

static enum status message_run(struct exec *exec, const struct instruction *at)
{
    struct comm *comm = exec->options.stages;
    bool sends = at->kind == INSTRUCTION_SEND;
    int value = sends ? operand_x(at, 0) : operand_y(at);
    void *data = exec_address(exec, NULL, value);
    void *stream = exec->device->backend->stream(exec->device, at->stream);
    size_t bytes = (size_t)exec->program->values[value].bytes;
    return sends ? comm->exchange->send(comm, at->peer, data, bytes, stream)
                 : comm->exchange->receive(comm, at->peer, data, bytes, stream);
}

/* If the results of each instruction are checked, each update runs separately. */
static enum status op_run(const struct exec *exec, const struct exec_step *step)
{
    if (!exec->check) return step->with_next ? OK : step->run(&step->call);
    struct call alone = step->call;
    alone.also = NULL;
    return step->run(&alone);
}

static enum status step_run(struct exec *exec, const struct exec_step *step)
{
    if (instruction_is_copy(step->at)) return copy_run(exec, step->at);
    if (instruction_is_message(step->at)) return message_run(exec, step->at);
    return instruction_is_collective(step->at) ? collective_run(exec, step->at) : op_run(exec, step);
}

enum status exec_step(struct exec *exec, int i)
{
    const struct exec_step *step = &exec->steps[i];
    enum status status = step_run(exec, step);
    if (status != OK) return fail(status, "%s failed", step->at->name);
    return OK;
}

static enum status run_instruction(struct exec *exec, int i)
{
    const struct instruction *at = exec->steps[i].at;
    if (at->kind == INSTRUCTION_UPDATE) return exec->update_code->apply(&exec->update);
    if (at->kind == INSTRUCTION_MEASURE)
        return exec->update_code->measure(&exec->update, exec_address(exec, NULL, operand_y(at)));
    return exec_step(exec, i);
}

/* A stage waits for others, and for its own messages, only when needed: the work that these wait for may be
 * queued later. */
static enum status reach_end(struct exec *exec, const struct instruction *at)
{
    const struct device_backend *backend = exec->device->backend;
    if (exec->program->stages == 1 || !exec->device->waits) return backend->synchronize(exec->device);
    if (instruction_is_message(at)) return OK;
    TRY(backend->events.record(exec->device, at->stream, EVENT_JOIN));
    return backend->events.synchronize(exec->device, EVENT_JOIN);
}

/* Waits for its end, so that its time is known, and device errors are attributed to it. */
static enum status run_to_end(struct exec *exec, int i)
{
    const struct instruction *at = exec->steps[i].at;
    TRY(reach_end(exec, at));
    exec->begins[i] = clock_nanoseconds();
    TRY(run_instruction(exec, i));
    enum status status = reach_end(exec, at);
    if (status != OK) return fail(status, "%s failed", at->name);
    exec->times[i] = clock_nanoseconds() - exec->begins[i];
    return OK;
}

static enum status queue_instruction(struct exec *exec, int i)
{
    const struct device_backend *backend = exec->device->backend;
    const struct instruction *at = exec->steps[i].at;
    for (int k = 0; k < at->wait_count; k++)
        TRY(backend->events.stream_wait(exec->device, at->stream, EVENT_STEPS + at->waits[k]));
    const struct device_timeline *timeline = backend->timeline;
    if (timeline) timeline->tag(exec->device, i, at->name);
    enum status status = exec->measure || exec->started == 0 ? run_to_end(exec, i) : run_instruction(exec, i);
    if (timeline) timeline->tag(exec->device, -1, NULL);
    TRY(status);
    if (exec->check) TRY(check_instruction(exec, i));
    return exec->steps[i].waited ? backend->events.record(exec->device, at->stream, EVENT_STEPS + i) : OK;
}

/* Other streams start after stream 0 and end before it. */
static enum status streams_fork(struct exec *exec)
{
    const struct device_backend *backend = exec->device->backend;
    if (exec->program->streams < 2) return OK;
    TRY(backend->events.record(exec->device, 0, EVENT_FORK));
    for (int stream = 1; stream < exec->program->streams; stream++)
        TRY(backend->events.stream_wait(exec->device, stream, EVENT_FORK));
    return OK;
}

static enum status streams_join(struct exec *exec)
{
    const struct device_backend *backend = exec->device->backend;
    for (int stream = 1; stream < exec->program->streams; stream++) {
        TRY(backend->events.record(exec->device, stream, EVENT_JOIN));
        TRY(backend->events.stream_wait(exec->device, 0, EVENT_JOIN));
    }
    return OK;
}

/* Results come to the host, where the device does not write them there itself. */
static enum status queue_results(struct exec *exec, const struct exec_slot *slot)
{
    const struct device_transfers *transfers = &exec->device->backend->transfers;
    if (slot->results != exec->results)
        TRY(transfers->download(exec->device, 0, slot->results, exec->results,
                                (size_t)exec->program->results_bytes));
    if (!exec->program->training) return OK;
    struct exec_exchange *exchange = slot->exchange;
    int flags = exec->program->flags_sum;
    if (flags >= 0)
        TRY(transfers->download(exec->device, 0, exchange->flags_sum, exec_address(exec, NULL, flags),
                                sizeof exchange->flags_sum));
    TRY(transfers->download(exec->device, 0, &exchange->state, exec->update.state, sizeof exchange->state));
    return transfers->download(exec->device, 0, &exchange->scale, exec->scale, sizeof exchange->scale);
}

static void begin_exchanges(const struct exec *exec)
{
    struct comm *stages = exec->options.stages, *replicas = exec->options.replicas;
    if (exec->program->stages > 1 && stages->exchange->begin) stages->exchange->begin(stages);
    if (exec->exchanges) replicas->exchange->begin(replicas);
}

static enum status exec_queue(struct exec *exec, const struct exec_slot *slot)
{
    bool training = exec->program->training;
    exec_bind(exec, slot);
    begin_exchanges(exec);
    if (training) TRY(exec->update_code->count(&exec->update));
    TRY(streams_fork(exec));
    for (int i = 0; i < exec->program->count; i++) TRY(queue_instruction(exec, i));
    TRY(streams_join(exec));
    if (training) TRY(exec->update_code->average(&exec->update));
    return queue_results(exec, slot);
}

/* The first run queues instruction by instruction: libraries initialise themselves, and errors name their
 * instruction. So do all runs if copies are from memory that is not pinned. */
static bool is_captured(const struct exec *exec)
{
    bool moves = exec->host && !exec->pinned;
    return exec->device->backend->capture.begin && !exec->measure && !exec->check && exec->started > 0 &&
           !moves;
}

/* If any of the step could not be queued, none of it is launched later. */
static enum status exec_capture(struct exec *exec, struct exec_slot *slot)
{
    const struct device_capture *capture = &exec->device->backend->capture;
    struct captured *captured = NULL;
    TRY(capture->begin(exec->device));
    enum status queued = exec_queue(exec, slot), ended = capture->end(exec->device, &captured);
    if (queued == OK && ended == OK) slot->captured = captured;
    else if (ended == OK) capture->free(captured);
    return queued == OK ? ended : queued;
}

static enum status queue_or_launch(struct exec *exec, struct exec_slot *slot)
{
    if (!is_captured(exec)) return exec_queue(exec, slot);
    if (!slot->captured) TRY(exec_capture(exec, slot));
    return exec->device->backend->capture.launch(exec->device, slot->captured);
}

static enum status exec_upload(struct exec *exec, struct exec_slot *slot, const struct exec_batch *batch,
                               int event)
{
    const struct device_backend *backend = exec->device->backend;
    int stream = exec->device->copy_stream;
    bool there = batch->unchanged && slot->batch.images == batch->images &&
                 slot->batch.labels == batch->labels;
    slot->batch = *batch;
    if (!slot->images || there) return OK;
    if (batch->make)
        TRY(batch->make(batch->maker, batch->images, stream, slot->images));
    else
        TRY(backend->transfers.upload(exec->device, stream, slot->images, batch->images,
                                      (size_t)exec->program->images_bytes));
    if (exec->program->targets_bytes > 0)
        TRY(backend->transfers.upload(exec->device, stream, slot->labels, batch->labels,
                                      (size_t)exec->program->targets_bytes));
    TRY(backend->events.record(exec->device, stream, event));
    return backend->events.stream_wait(exec->device, 0, event);
}

static enum status exec_start_slot(struct exec *exec, struct exec_slot *slot, const struct exec_batch *batch,
                                   int index)
{
    TRY(exec_upload(exec, slot, batch, EVENT_UPLOADED + index));
    TRY(queue_or_launch(exec, slot));
    slot->glimpsed = false;
    if (exec->glimpse_next) TRY(glimpse_queue(exec, slot));
    exec->glimpse_next = false;
    return exec->device->backend->events.record(exec->device, 0, EVENT_DONE + index);
}

/* Ranks write to the same offsets of each other's arenas. */
static enum status compare_places(const struct exec *exec, int *exchanges)
{
    struct text places = {0};
    text_add(&places, "working memory of %" PRId64 " bytes\n", exec->arena_bytes);
    for (int i = 0; i < exec->program->count; i++) {
        const struct instruction *at = &exec->program->instructions[i];
        if (!instruction_is_collective(at)) continue;
        ++*exchanges;
        text_add(&places, "%s at %" PRId64 "\n", at->name, exec->compiled->plan.offsets[operand_y(at)]);
    }
    int rounds = exec->sharing ? matrix_sharing_rounds(exec->sharing) : 0;
    *exchanges += rounds;
    if (rounds > 0)
        text_add(&places, "matrices at %td\n", (char *)exec->params[0].scratch - (char *)exec->arena);
    enum status status = compare_texts(exec->options.replicas, places.data);
    text_free(&places);
    return status;
}

/* Stages learn what they are to get from each other, before their first step. */
static enum status expect_messages(const struct exec *exec)
{
    struct comm *comm = exec->options.stages;
    const struct program *program = exec->program;
    if (exec->started > 0 || program->stages < 2 || !comm->exchange->expect) return OK;
    struct comm_mail *from = memory_new((size_t)comm->count, sizeof *from);
    stage_mail(program, from);
    enum status status = comm->exchange->expect(comm, from);
    free(from);
    return status;
}

/* Shares the arena; all ranks have allocated their memory. */
static enum status share_arena(struct exec *exec)
{
    if (exec->exchanges || !exec_shares_arena(exec)) return OK;
    struct comm *comm = exec->options.replicas;
    int exchanges = 0;
    TRY(compare_places(exec, &exchanges));
    TRY(comm->exchange->share(comm, exec->arena, exchanges));
    exec->exchanges = true;
    return OK;
}

enum status exec_start(struct exec *exec, const struct exec_batch *batch, const struct update_rates *rates)
{
    assert(exec->started - exec->collected < exec->depth);
    int index = (int)(exec->started % exec->depth);
    struct exec_slot *slot = &exec->slots[index];
    slot->exchange->rates = *rates;
    slot->exchange->fingerprint = 0;
    enum status status = expect_messages(exec);
    if (status == OK) status = share_arena(exec);
    if (status == OK) status = exec_start_slot(exec, slot, batch, index);
    if (status == OK) exec->started++;
    else exec->device->backend->synchronize(exec->device);
    return status;
}

enum status exec_take_fingerprint(struct exec *exec)
{
    const struct store *store = exec->options.store;
    int index = (int)((exec->started - 1) % exec->depth);
    struct execution_check check = {.fingerprints = &exec->slots[index].exchange->fingerprint, .sought = -1};
    const struct checked_tensor all = {store->memory, (size_t)store->layout.bytes, 0, "store", "all"};
    TRY(check_tensor(exec, &check, &all));
    return exec->device->backend->events.record(exec->device, 0, EVENT_DONE + index);
}

enum status exec_collect(struct exec *exec)
{
    assert(exec->collected < exec->started);
    int index = (int)(exec->collected % exec->depth);
    TRY(exec->device->backend->events.synchronize(exec->device, EVENT_DONE + index));
    TRY(comm_alive(exec->options.replicas));
    TRY(comm_alive(exec->options.stages));
    exec->collected++;
    exec->last = &exec->slots[index];
    int ranks = comm_count(exec->options.replicas);
    if (exec->program->flags_sum < 0) return OK;
    if (exec->last->exchange->flags_sum[FLAG_PRESENT] == (float)ranks) return OK;
    return fail(FAILED, "the exchange of gradients among %d ranks was aborted", ranks);
}

bool exec_idle(const struct exec *exec)
{
    const struct device_backend *backend = exec->device->backend;
    if (exec->started == exec->collected || !backend->events.query) return true;
    return backend->events.query(exec->device, EVENT_DONE + (int)((exec->started - 1) % exec->depth));
}

enum status exec_run(struct exec *exec, const struct exec_batch *batch, double lr, double momentum)
{
    double ema = exec->update.settings.ema;
    struct update_rates rates = {.lr = {lr, lr}, .momentum = {momentum, momentum}, .ema = {ema, ema}};
    if (exec->program->training) rates.updates = exec_state(exec)->updates;
    TRY(exec_start(exec, batch, &rates));
    return exec_collect(exec);
}
