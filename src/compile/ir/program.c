#include "compile/ir/program.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "kernels/optimizer/update.h"

enum dtype program_param_dtype(const struct graph *graph, int param, enum dtype storage)
{
    const struct parameter *parameter = &graph->params[param];
    const struct op *op = graph->nodes[parameter->node].op;
    bool weight = parameter->spec.role == ROLE_WEIGHT || parameter->spec.role == ROLE_BIAS;
    return op->precision == CLASS_LOW && weight ? storage : parameter->spec.dtype;
}

bool program_param_trained(const struct parameter *param)
{
    return param->spec.role != ROLE_STATISTIC && !param->frozen;
}

int64_t program_update_chunks(const struct graph *graph, int param)
{
    int64_t chunks = 0;
    for (int p = 0; p < param; p++)
        if (program_param_trained(&graph->params[p]))
            chunks += (shape_count(graph->params[p].spec.shape) + UPDATE_CHUNK - 1) / UPDATE_CHUNK;
    return chunks;
}

bool recompute_keeps_saved(const struct op *op)
{
    return op->reference->recompute != NULL;
}

int recompute_inputs(const struct instruction *forward)
{
    bool reads = !recompute_keeps_saved(forward->op) ||
                 (forward->op->reads(forward->settings, PHASE_RECOMPUTE) & (READS_X | READS_FIRST_X));
    return reads ? forward->x_count : 0;
}

void value_set_bytes(struct value *value)
{
    value->bytes = shape_count(value->shape) * (int64_t)dtype_bytes(value->dtype);
}

int build_value(struct program *program, struct value value, char *name)
{
    value.name = name;
    value_set_bytes(&value);
    *array_push(program->values, program->value_count) = value;
    return program->value_count - 1;
}

int build_sums(struct program *program, int node, int rows, int64_t channels, char *name)
{
    struct value value = {.home = HOME_ARENA, .kind = KIND_OTHER, .dtype = F32, .node = node, .index = -1,
                          .shape = {.rank = 2, .dim = {rows, channels, 1, 1}}};
    return build_value(program, value, name);
}

const struct op *build_op(const char *name)
{
    const struct op *op = op_find(name);
    assert(op);
    return op;
}

const void *build_settings(struct program *program, const struct op *op, char *text)
{
    struct reason reason = {0};
    void *settings = op_settings_new(op, text, &reason);
    assert(settings);
    free(text);
    *array_push(program->internals, program->internal_count) = (struct internal){op, settings};
    return settings;
}

struct instruction instruction_new(enum phase phase, const struct op *op, const void *settings, char *name)
{
    return (struct instruction){.phase = phase, .op = op, .settings = settings, .name = name,
                                .node = -1, .kernel_plan = -1, .y = -1, .d_y = -1, .d_y_more = -1,
                                .d_x_more = -1, .y_recomputed = -1, .sums = -1, .y_sums = -1,
                                .x_products = -1, .y_products = -1, .mask = -1, .workspace = -1,
                                .loss_weight = 1, .behind = -1, .in_place_from = -1, .in_place_to = -1};
}

struct instruction instruction_transfer(enum instruction_kind kind, enum phase phase, char *name, int x,
                                        int y)
{
    struct instruction at = instruction_new(phase, NULL, NULL, name);
    at.kind = kind;
    at.x_count = x >= 0;
    at.x = ids_copy(&x, at.x_count);
    at.y = y;
    if (x >= 0) *array_push(at.reads, at.read_count) = x;
    if (y >= 0) *array_push(at.writes, at.write_count) = y;
    return at;
}

static char *name_with_phase(const char *name, enum phase phase)
{
    char *whole = text_format("%s %s", name, phase_words[phase]);
    for (char *c = whole + strlen(name); *c; c++)
        if (*c == '_') *c = ' ';
    return whole;
}

char *instruction_name(const struct program *program, int node, enum phase phase)
{
    return node < 0 ? NULL : name_with_phase(program->graph->nodes[node].name, phase);
}

struct instruction instruction_after(const struct program *program, const struct instruction *forward,
                                     enum phase phase)
{
    char *name = forward->node >= 0 ? instruction_name(program, forward->node, phase)
                                    : name_with_phase(forward->name, phase);
    struct instruction at = instruction_new(phase, forward->op, forward->settings, name);
    at.node = forward->node;
    at.micro_batch = forward->micro_batch;
    at.kernel_plan = forward->kernel_plan;
    at.loss_weight = forward->loss_weight;
    at.relu = forward->relu;
    at.clips = forward->clips;
    at.x = ids_copy(forward->x, forward->x_count);
    at.x_count = forward->x_count;
    at.params = ids_copy(forward->params, forward->param_count);
    at.param_count = forward->param_count;
    at.saved = ids_copy(forward->saved, forward->saved_count);
    at.saved_count = forward->saved_count;
    at.y = forward->y;
    return at;
}

void instruction_free(struct instruction *instruction)
{
    int *lists[] = {instruction->x, instruction->d_x, instruction->params, instruction->d_params,
                    instruction->saved, instruction->reads, instruction->writes, instruction->waits};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]);
    free(instruction->name);
}

int *ids_copy(const int *ids, int count)
{
    int *copy = memory_new((size_t)count, sizeof *copy);
    if (count > 0) memcpy(copy, ids, (size_t)count * sizeof *copy);
    return copy;
}

bool ids_have(const int *ids, int count, int id)
{
    for (int i = 0; i < count; i++)
        if (ids[i] == id) return true;
    return false;
}

static void reads_add(struct instruction *instruction, int id)
{
    if (id < 0 || ids_have(instruction->reads, instruction->read_count, id)) return;
    *array_push(instruction->reads, instruction->read_count) = id;
}

static void writes_add(struct instruction *instruction, int id)
{
    if (id >= 0) *array_push(instruction->writes, instruction->write_count) = id;
}

static void reads_add_all(struct instruction *instruction, const int *ids, int count)
{
    for (int i = 0; i < count; i++) reads_add(instruction, ids[i]);
}

static void writes_add_all(struct instruction *instruction, const int *ids, int count)
{
    for (int i = 0; ids && i < count; i++) writes_add(instruction, ids[i]);
}

static void link_forward(struct instruction *at)
{
    reads_add_all(at, at->x, at->x_count);
    reads_add_all(at, at->params, at->param_count);
    writes_add(at, at->y);
    if (at->ranks > 0) reads_add_all(at, at->saved, at->saved_count);
    else writes_add_all(at, at->saved, at->saved_count);
    if (at->sums_given) writes_add(at, at->sums);
    else reads_add(at, at->sums);
    writes_add(at, at->y_sums);
    writes_add(at, at->mask);
}

static void link_recompute(struct instruction *at)
{
    bool saved = recompute_keeps_saved(at->op);
    reads_add_all(at, at->x, recompute_inputs(at));
    reads_add_all(at, at->params, at->param_count);
    if (saved) reads_add_all(at, at->saved, at->saved_count);
    writes_add(at, at->y);
    if (!saved) writes_add_all(at, at->saved, at->saved_count);
    if (at->sums_given) writes_add(at, at->sums);
    writes_add(at, at->mask);
}

static void link_backward(struct instruction *at)
{
    unsigned reads = at->op->reads ? at->op->reads(at->settings, at->phase) : READS_NOTHING;
    bool joined = at->sums >= 0 && !at->sums_given && at->ranks == 0;   /* d_y is behind the activation */
    reads_add(at, at->d_y);
    reads_add(at, at->d_y_more);
    reads_add(at, at->d_x_more);
    if (at->d_x_more >= 0) reads_add(at, at->mask);
    if (reads & READS_X) reads_add_all(at, at->x, at->x_count);
    if (reads & READS_FIRST_X) reads_add(at, at->x[0]);
    if ((reads & READS_Y) && !joined) reads_add(at, at->mask >= 0 ? at->mask : at->y);
    if (reads & READS_PARAMS) reads_add_all(at, at->params, at->param_count);
    if (reads & READS_SAVED) reads_add_all(at, at->saved, at->saved_count);
    writes_add_all(at, at->d_x, at->x_count);
    writes_add_all(at, at->d_params, at->param_count);
    writes_add(at, at->y_recomputed);
    if (at->sums_given) writes_add(at, at->sums);
    else reads_add(at, at->sums);
    writes_add(at, at->x_products);
    reads_add(at, at->y_products);
}

static void link_update(const struct program *program, struct instruction *at)
{
    reads_add(at, at->saved[at->op->moments.mean]);
    reads_add(at, at->saved[at->op->moments.variance]);
    reads_add_all(at, at->params, at->param_count);
    for (int i = 0; i < at->param_count; i++) {
        const struct value *value = &program->values[at->params[i]];
        if (program->graph->params[value->index].spec.role == ROLE_STATISTIC) writes_add(at, at->params[i]);
    }
}

/* The in-place pair that the op allows; liveness decides whether `from` dies there. */
static void link_in_place(const struct program *program, struct instruction *at)
{
    struct shape shapes[OP_MAX_INPUTS];
    at->in_place_from = at->in_place_to = -1;
    if (!at->op->in_place || at->phase == PHASE_UPDATE || at->phase == PHASE_BACKWARD_PARAMS) return;
    for (int i = 0; i < at->x_count; i++) shapes[i] = program->values[at->x[i]].shape;
    bool forward = at->phase == PHASE_FORWARD || at->phase == PHASE_RECOMPUTE;
    if (!at->op->in_place(at->settings, forward ? PHASE_FORWARD : at->phase, at->x_count, shapes)) return;
    int from = forward ? at->x[0] : at->d_y;
    int to = forward ? at->y : at->d_x[0];
    if (from < 0 || to < 0) return;
    at->in_place_from = from;
    at->in_place_to = to;
}

void instruction_link(const struct program *program, struct instruction *instruction)
{
    if (!instruction->op) return;
    instruction->read_count = instruction->write_count = 0;
    free(instruction->reads);
    free(instruction->writes);
    instruction->reads = instruction->writes = NULL;
    switch (instruction->phase) {
    case PHASE_FORWARD: link_forward(instruction); break;
    case PHASE_BACKWARD:
    case PHASE_BACKWARD_DATA:
    case PHASE_BACKWARD_PARAMS: link_backward(instruction); break;
    case PHASE_UPDATE: link_update(program, instruction); break;
    case PHASE_RECOMPUTE: link_recompute(instruction); break;
    case PHASE_COUNT: assert(false);
    }
    writes_add(instruction, instruction->workspace);
    link_in_place(program, instruction);
}

void build_push(struct program *program, struct instruction instruction)
{
    instruction_link(program, &instruction);
    *array_push(program->instructions, program->count) = instruction;
}

void build_remove(struct program *program, const bool *gone)
{
    int count = 0, first_backward = program->first_backward;
    for (int i = 0; i < program->count; i++) {
        if (gone[i]) instruction_free(&program->instructions[i]);
        else program->instructions[count++] = program->instructions[i];
        if (gone[i] && i < first_backward) program->first_backward--;
    }
    program->count = count;
}

static void use_note(int *who, int i)
{
    *who = *who == NO_USE || *who == i ? i : SEVERAL_USES;
}

struct value_uses *value_uses(const struct program *program)
{
    struct value_uses *uses = memory_new((size_t)program->value_count, sizeof *uses);
    for (int v = 0; v < program->value_count; v++) uses[v] = (struct value_uses){NO_USE, NO_USE};
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        for (int k = 0; k < at->write_count; k++) use_note(&uses[at->writes[k]].writer, i);
        for (int k = 0; k < at->read_count; k++) use_note(&uses[at->reads[k]].reader, i);
    }
    return uses;
}

int build_cast(struct program *program, int from, enum dtype dtype, int micro_batch)
{
    const struct op *op = build_op("cast");
    const char *type = dtype_table[dtype].name;
    const void *settings = build_settings(program, op, text_format("to=%s", type));
    struct value value = program->values[from];
    const char *name = value.name;
    char *value_name = text_format("%s as %s", name, type);
    struct instruction cast = instruction_new(PHASE_FORWARD, op, settings,
                                              text_format("cast %s to %s", name, type));
    value.home = HOME_ARENA;
    value.dtype = dtype;
    cast.micro_batch = micro_batch;
    cast.x = ids_copy(&from, 1);
    cast.x_count = 1;
    cast.y = build_value(program, value, value_name);
    build_push(program, cast);
    return cast.y;
}

void program_free(struct program *program)
{
    for (int i = 0; i < program->value_count; i++) free(program->values[i].name);
    for (int i = 0; i < program->count; i++) instruction_free(&program->instructions[i]);
    for (int i = 0; i < program->internal_count; i++)
        op_settings_free(program->internals[i].op, program->internals[i].settings);
    free(program->values);
    free(program->instructions);
    free(program->internals);
    free(program->gradients);
    free(program->node_stages);
    free(program->offsets);
    if (program->fused) graph_free(program->fused);
    free(program->fused);
    *program = (struct program){0};
}

static int *ids_copy_if(const int *ids, int count)
{
    return ids ? ids_copy(ids, count) : NULL;
}

struct instruction instruction_copy(const struct instruction *at)
{
    struct instruction copy = *at;
    copy.name = text_copy(at->name);
    copy.x = ids_copy_if(at->x, at->x_count);
    copy.d_x = ids_copy_if(at->d_x, at->x_count);
    copy.params = ids_copy_if(at->params, at->param_count);
    copy.d_params = ids_copy_if(at->d_params, at->param_count);
    copy.saved = ids_copy_if(at->saved, at->saved_count);
    copy.reads = copy.writes = copy.waits = NULL;
    copy.read_count = copy.write_count = copy.wait_count = 0;
    for (int k = 0; k < at->read_count; k++) *array_push(copy.reads, copy.read_count) = at->reads[k];
    for (int k = 0; k < at->write_count; k++) *array_push(copy.writes, copy.write_count) = at->writes[k];
    for (int k = 0; k < at->wait_count; k++) *array_push(copy.waits, copy.wait_count) = at->waits[k];
    return copy;
}

struct program program_copy(const struct program *program)
{
    struct program copy = *program;
    copy.values = NULL;
    copy.instructions = NULL;
    copy.internals = NULL;
    copy.offsets = NULL;
    copy.fused = NULL;
    copy.value_count = copy.count = copy.internal_count = copy.offset_count = 0;
    for (int v = 0; v < program->value_count; v++) {
        struct value value = program->values[v];
        value.name = text_copy(value.name);
        *array_push(copy.values, copy.value_count) = value;
    }
    for (int i = 0; i < program->count; i++)
        *array_push(copy.instructions, copy.count) = instruction_copy(&program->instructions[i]);
    copy.gradients = ids_copy(program->gradients, program->graph->param_count);
    copy.node_stages = ids_copy_if(program->node_stages, program->graph->count);
    return copy;
}

static struct tensor tensor_of(const struct program *program, int id)
{
    if (id < 0) return (struct tensor){0};
    const struct value *value = &program->values[id];
    return (struct tensor){.dtype = value->dtype, .shape = value->shape};
}

static void tensors_of(const struct program *program, const int *ids, int count, struct tensor *out)
{
    for (int i = 0; i < count; i++) out[i] = tensor_of(program, ids ? ids[i] : -1);
}

/* A gradient that was passed on has the element count of its tensor, but may have another shape (flatten);
 * code expects the tensor's. Those that join another may have more channels or fewer pixels. */
static struct tensor gradient_of(const struct program *program, int id, int of)
{
    struct tensor tensor = tensor_of(program, id);
    if (id < 0 || of < 0) return tensor;
    struct shape shape = program->values[of].shape;
    if (shape_count(tensor.shape) == shape_count(shape)) tensor.shape = shape;
    return tensor;
}

/* Without saved values, forward recomputes. */
static enum phase call_phase(const struct instruction *at)
{
    bool forward = at->phase == PHASE_RECOMPUTE && !recompute_keeps_saved(at->op);
    return forward ? PHASE_FORWARD : at->phase;
}

int program_next_message(const struct program *program, enum instruction_kind kind, int peer, int i)
{
    for (; i < program->count; i++)
        if (program->instructions[i].kind == kind && program->instructions[i].peer == peer) return i;
    return -1;
}

struct call program_call(const struct program *program, int i, struct call_storage *storage)
{
    const struct instruction *at = &program->instructions[i];
    tensors_of(program, at->x, at->x_count, storage->x);
    for (int k = 0; k < at->x_count; k++)
        storage->d_x[k] = gradient_of(program, at->d_x ? at->d_x[k] : -1, at->x[k]);
    tensors_of(program, at->params, at->param_count, storage->params);
    tensors_of(program, at->d_params, at->param_count, storage->d_params);
    tensors_of(program, at->saved, at->saved_count, storage->saved);
    return (struct call){
        .settings = at->settings, .phase = call_phase(at), .training = program->training,
        .x_count = at->x_count, .param_count = at->param_count, .saved_count = at->saved_count,
        .x = storage->x, .d_x = storage->d_x, .params = storage->params,
        .d_params = storage->d_params, .saved = storage->saved,
        .y = tensor_of(program, at->y), .d_y = gradient_of(program, at->d_y, at->y),
        .d_y_more = gradient_of(program, at->d_y_more, at->y),
        .d_x_more = gradient_of(program, at->d_x_more, at->x_count > 0 ? at->x[0] : -1),
        .y_recomputed = tensor_of(program, at->y_recomputed),
        .sums = tensor_of(program, at->sums), .y_sums = tensor_of(program, at->y_sums),
        .x_products = tensor_of(program, at->x_products), .y_products = tensor_of(program, at->y_products),
        .mask = tensor_of(program, at->mask),
        .relu = at->relu, .clips = at->clips, .ranks = at->ranks, .loss_weight = at->loss_weight,
    };
}
