/* exec_steps.c: converts instructions to calls with pointers, and parameters to the list of the update. */
#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "exec/exec_parts.h"

static void *state_of(const struct exec *exec, size_t offset)
{
    const struct store *store = exec->options.store;
    return (char *)store->memory + store->layout.state + offset;
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
    case PHASE_RECOMPUTE: return code->recompute ? code->recompute : code->forward;
    case PHASE_COUNT: break;
    }
    return NULL;
}

/* Sets the data of a tensor that the phase uses. Tensors in the batch, or which another stage sends, get
 * theirs with each run. */
static void exec_resolve(struct exec *exec, int id, struct tensor *tensor)
{
    const struct value *value = &exec->program->values[id];
    bool given = value->home == HOME_IMAGES || value->home == HOME_TARGETS || value->home == HOME_FLAGS;
    if (given || value->home == HOME_MAIL)
        *array_push(exec->inputs, exec->input_count) = (struct exec_input){tensor, id};
    else
        tensor->data = exec_address(exec, NULL, id);
}

/* A copy in the exec's own memory. */
static struct tensor *place_tensors(struct exec *exec, const struct tensor *from, int count)
{
    struct tensor *to = exec->tensors + exec->tensor_count;
    exec->tensor_count += count;
    for (int i = 0; i < count; i++) to[i] = from[i];
    return to;
}

static void call_place(struct exec *exec, const struct instruction *at, struct call *call)
{
    call->x = place_tensors(exec, call->x, call->x_count);
    call->d_x = place_tensors(exec, call->d_x, call->x_count);
    call->params = place_tensors(exec, call->params, call->param_count);
    call->d_params = place_tensors(exec, call->d_params, call->param_count);
    call->saved = place_tensors(exec, call->saved, call->saved_count);
    FOR_OPERANDS(o, at) {
        if (o->access == ACCESS_SHAPE || o->role == OPERAND_WORKSPACE) continue;
        exec_resolve(exec, o->value, call_tensor(call, (enum operand_role)o->role, (int)o->index));
    }
    int workspace = operand(at, OPERAND_WORKSPACE, 0);
    call->workspace = workspace >= 0 ? exec_address(exec, NULL, workspace) : NULL;
}

static void step_open(struct exec *exec, int i, struct call_storage *storage)
{
    struct exec_step *step = &exec->steps[i];
    const struct instruction *at = step->at = &exec->program->instructions[i];
    for (int k = 0; k < at->wait_count; k++) exec->steps[at->waits[k]].waited = true;
    if (!at->op) return;
    step->run = code_run(exec->compiled->kernel_plans.options.code_of(at->op), at->phase);
    assert(step->run);
    struct call *call = &step->call;
    *call = program_call(exec->program, i, storage);
    call_place(exec, at, call);
    call->kernel_plan = kernel_plans_of(&exec->compiled->kernel_plans, at);
    call->device = exec->device;
    call->stream = exec->device->backend->stream(exec->device, at->stream);
    call->tf32 = exec->options.tf32;
    call->deterministic = exec->options.deterministic;
    call->loss_scale = exec->scale;
    if (!exec->program->training) return;
    if (at->phase == PHASE_UPDATE) call->skipped = state_of(exec, offsetof(struct optimizer_state, skipped));
    step->random = (struct op_random){
        .seed = exec->options.seed, .step = state_of(exec, offsetof(struct optimizer_state, step)),
        .micro_batch = (uint32_t)(exec->program->first_micro_batch + at->micro_batch),
        .layer = (uint32_t)at->node,
    };
    call->random = &step->random;
}

/* Consecutive updates of running statistics are done together, in the position of the last. */
static void join_updates(struct exec *exec)
{
    for (int i = 1; i < exec->program->count; i++) {
        struct exec_step *last = &exec->steps[i - 1], *step = &exec->steps[i];
        if (!instruction_is_op_update(step->at) || step->run != last->run) continue;
        if (last->waited || last->at->stream != step->at->stream) continue;
        last->with_next = true;
        step->call.also = &last->call;
    }
}

void steps_open(struct exec *exec)
{
    const struct program *program = exec->program;
    size_t tensors = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        tensors += (size_t)(2 * operand_count(at, OPERAND_X) + 2 * operand_count(at, OPERAND_PARAM) +
                            operand_count(at, OPERAND_SAVED));
    }
    exec->tensors = memory_new(tensors, sizeof *exec->tensors);
    exec->steps = memory_new((size_t)program->count, sizeof *exec->steps);
    exec->times = memory_new((size_t)program->count, sizeof *exec->times);
    exec->begins = memory_new((size_t)program->count, sizeof *exec->begins);
    struct call_storage *storage = memory_new(1, sizeof *storage);
    for (int i = 0; i < program->count; i++) step_open(exec, i, storage);
    free(storage);
    join_updates(exec);
}

/* The workspace of the update. */
static void *update_scratch(const struct exec *exec)
{
    for (int i = 0; i < exec->program->count; i++) {
        const struct instruction *at = &exec->program->instructions[i];
        int workspace = at->kind == INSTRUCTION_UPDATE ? operand(at, OPERAND_WORKSPACE, 0) : -1;
        if (workspace >= 0) return exec_address(exec, NULL, workspace);
    }
    return NULL;
}

static struct optimizer_param param_open(const struct exec *exec, int p)
{
    const struct store *store = exec->options.store;
    const struct store_slot *slot = &store->layout.params[p];
    const struct parameter *param = &store->graph->params[p];
    char *memory = store->memory;
    bool scaled = param->spec.role == ROLE_WEIGHT || exec->options.decay_norm_bias;
    struct optimizer_param out = {
        .count = shape_count(param->spec.shape),
        .master = (float *)(memory + slot->master),
        .gradient = exec_address(exec, NULL, exec->program->gradients[p]),
        .average = slot->average == STORE_NONE ? NULL : (float *)(memory + slot->average),
        .low = slot->low == STORE_NONE ? NULL : memory + slot->low,
        .low_dtype = store->layout.low,
        .decay = scaled,
        .adapt = scaled,
        .lr_scale = param->lr_scale,
        .rows = exec->options.optimizer->has_matrices ? param->rows : 0,
        .alike = param->alike,
        .scratch = update_scratch(exec),
    };
    for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++)
        out.slots[s] = slot->slots[s] == STORE_NONE ? NULL : (float *)(memory + slot->slots[s]);
    return out;
}

static void params_open(struct exec *exec)
{
    const struct graph *graph = exec->program->graph;
    exec->params = memory_new((size_t)graph->param_count, sizeof *exec->params);
    exec->first_squares = memory_new((size_t)graph->param_count, sizeof *exec->first_squares);
    for (int p = 0; p < graph->param_count; p++) {
        if (exec->program->gradients[p] < 0) continue;
        exec->first_squares[exec->param_count] = program_update_chunks(graph, p);
        exec->params[exec->param_count++] = param_open(exec, p);
    }
}

static struct update_squares squares_open(const struct exec *exec)
{
    const struct program *program = exec->program;
    struct update_squares squares = {.first = exec->first_squares};
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->kind != INSTRUCTION_UPDATE || operand_x(at, 0) < 0) continue;
        squares.stages = program->stages;
        squares.count = program_update_chunks(program->graph, program->graph->param_count);
        squares.all = exec_address(exec, NULL, operand_x(at, 0));
    }
    return squares;
}

static void averages_open(struct exec *exec)
{
    const struct store *store = exec->options.store;
    char *memory = store->memory;
    for (int p = 0; p < store->layout.count; p++) {
        const struct store_slot *slot = &store->layout.params[p];
        const struct op_param *spec = &store->graph->params[p].spec;
        if (spec->role != ROLE_STATISTIC || slot->average == STORE_NONE) continue;
        *array_push(exec->averages, exec->average_count) = (struct update_average){
            spec->dtype, memory + slot->master, memory + slot->average, shape_count(spec->shape)};
    }
}

/* Training has not begun: sets the initial loss scale. */
static enum status scale_open(struct exec *exec)
{
    struct optimizer_state state;
    TRY(store_read_state(exec->options.store, &state));
    if (state.scaler.scale == 0) {
        state.scaler = scaler_start(&exec->options.scaling);
        TRY(store_write_state(exec->options.store, &state));
    }
    for (int s = 0; s < exec->depth; s++) exec->slots[s].exchange->state = state;
    return OK;
}

static const struct update_code *update_on(enum device_kind kind)
{
    switch (kind) {
    case DEVICE_CPU: return &update_cpu;
    case DEVICE_CUDA: return ON_CUDA(update_cuda);
    }
    return NULL;
}

static enum status gather(void *context, const void *from, void *to, size_t bytes, void *stream)
{
    struct comm *comm = context;
    return comm->exchange->all_gather(comm, from, to, bytes, stream);
}

static struct matrix_sharing *share_matrices(const struct exec *exec)
{
    struct comm *comm = exec->options.replicas;
    const struct matrix_ranks ranks = {comm_rank(comm), comm_count(comm), gather, comm};
    bool on_gpu = exec->device->backend->kind != DEVICE_CPU;
    if (!exec->options.optimizer->has_matrices) return NULL;
    return matrix_sharing_open(&ranks, on_gpu, exec->params, exec->param_count);
}

enum status update_open(struct exec *exec, struct text *shortage)
{
    const struct exec_options *options = &exec->options;
    params_open(exec);
    averages_open(exec);
    TRY(scale_open(exec));
    exec->update_code = update_on(exec->device->backend->kind);
    exec->sharing = share_matrices(exec);
    exec->update = (struct update){
        .optimizer = options->optimizer, .settings = options->optimizer_settings, .scaling = options->scaling,
        .params = exec->params, .param_count = exec->param_count,
        .averages = exec->averages, .average_count = exec->average_count, .squares = squares_open(exec),
        .sharing = exec->sharing, .stop_at = options->stop_at,
        .state = state_of(exec, 0), .scale = exec->scale,
        .device = exec->device, .stream = exec->device->backend->stream(exec->device, 0),
    };
    exec->updates = true;
    enum status status = exec->update_code->open(&exec->update);
    if (status == NO_DEVICE && shortage)
        text_add(shortage, "the device has too little memory left for the update");
    return status;
}
