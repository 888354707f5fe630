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
    return reads ? operand_count(forward, OPERAND_X) : 0;
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
    return (struct instruction){.phase = phase, .op = op, .settings = settings, .name = name, .node = -1,
                                .kernel_plan = -1, .loss_weight = 1, .behind = -1,
                                .in_place = {{-1, -1}, {-1, -1}}};
}

struct instruction instruction_transfer(enum instruction_kind kind, enum phase phase, char *name, int x,
                                        int y)
{
    struct instruction at = instruction_new(phase, NULL, NULL, name);
    at.kind = kind;
    operand_set(&at, OPERAND_X, 0, x);
    operand_set(&at, OPERAND_Y, 0, y);
    instruction_link(NULL, &at);
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
    FOR_OPERANDS(o, forward)
        if (operand_rows[o->role].kind <= OPERAND_KIND_MEMBER)
            operand_set(&at, (enum operand_role)o->role, (int)o->index, o->value);
    for (int k = 0; forward->op && forward->op->activates && k < forward->epilogue_count; k++)
        if (epilogue_activation(&forward->epilogues[k]))
            at.epilogues[at.epilogue_count++] = forward->epilogues[k];
    return at;
}

void instruction_free(struct instruction *instruction)
{
    free(instruction->operands);
    free(instruction->waits);
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

/* The place of an operand among those of an instruction, or where it would be. */
static int operand_place(const struct instruction *at, enum operand_role role, int index)
{
    int k = role == OPERAND_X ? 0 : at->operand_count;
    while (k > 0 && (at->operands[k - 1].role > role ||
                     (at->operands[k - 1].role == role && (int)at->operands[k - 1].index >= index))) k--;
    while (k < at->operand_count && at->operands[k].role == role && (int)at->operands[k].index < index) k++;
    return k;
}

static bool operand_is_at(const struct instruction *at, int k, enum operand_role role, int index)
{
    return k < at->operand_count && at->operands[k].role == role && (int)at->operands[k].index == index;
}

int operand(const struct instruction *at, enum operand_role role, int index)
{
    for (int k = role == OPERAND_X ? index : 0; k < at->operand_count && at->operands[k].role <= role; k++)
        if (operand_is_at(at, k, role, index)) return at->operands[k].value;
    return -1;
}

int operand_count(const struct instruction *at, enum operand_role role)
{
    int count = 0;
    for (int k = 0; k < at->operand_count && at->operands[k].role <= role; k++)
        if (at->operands[k].role == role) count = (int)at->operands[k].index + 1;
    return count;
}

void operand_set(struct instruction *at, enum operand_role role, int index, int value)
{
    int k = operand_place(at, role, index);
    bool there = operand_is_at(at, k, role, index);
    if (there && value >= 0) {
        at->operands[k].value = value;
    } else if (there) {
        at->operand_count--;
        memmove(at->operands + k, at->operands + k + 1,
                (size_t)(at->operand_count - k) * sizeof *at->operands);
    } else if (value >= 0) {
        array_push(at->operands, at->operand_count);
        memmove(at->operands + k + 1, at->operands + k,
                (size_t)(at->operand_count - 1 - k) * sizeof *at->operands);
        at->operands[k] = (struct operand){.role = role, .index = (unsigned)index, .value = value};
    }
}

void operands_replace(struct instruction *at, const int *to, int count)
{
    for (int k = 0; k < at->operand_count; k++) {
        int value = at->operands[k].value;
        if (value < count && to[value] >= 0) at->operands[k].value = to[value];
    }
}

void epilogue_add(struct instruction *at, enum epilogue_kind kind, enum operand_role role, int value)
{
    int k = kind == EPILOGUE_X_RELU6 ? 0 : at->epilogue_count;
    assert(at->epilogue_count < CALL_MAX_EPILOGUES);
    size_t behind = (size_t)(at->epilogue_count++ - k);
    memmove(at->epilogues + k + 1, at->epilogues + k, behind * sizeof *at->epilogues);
    at->epilogues[k] = (struct epilogue){(uint8_t)kind, (uint8_t)role, 0};
    if (role != OPERAND_ROLES) operand_set(at, role, 0, value);
}

bool epilogue_has(const struct instruction *at, enum epilogue_kind kind)
{
    for (int k = 0; k < at->epilogue_count; k++)
        if (at->epilogues[k].kind == kind) return true;
    return false;
}

void epilogues_take(struct instruction *at, const struct instruction *from)
{
    at->epilogue_count = 0;
    for (int k = 0; k < from->epilogue_count; k++) {
        enum operand_role role = (enum operand_role)from->epilogues[k].operand;
        if (role == OPERAND_ROLES || operand(at, role, 0) >= 0)
            at->epilogues[at->epilogue_count++] = from->epilogues[k];
    }
}

int instruction_over(const struct instruction *at, int value)
{
    for (int p = 0; p < IN_PLACE_PAIRS; p++)
        if (at->in_place[p].to == value) return at->in_place[p].from;
    return -1;
}

bool instruction_reads(const struct instruction *at, int value)
{
    FOR_OPERANDS(o, at)
        if (o->value == value && (o->access & ACCESS_READ)) return true;
    return false;
}

bool instruction_writes(const struct instruction *at, int value)
{
    FOR_WRITES(o, at)
        if (o->value == value) return true;
    return false;
}

/* An instruction, and what the accesses to several of its operands depend on. */
struct linking {
    const struct program *program;
    const struct instruction *at;
    unsigned reads;          /* enum reads: of a backward phase */
    bool masked;             /* backward reads the mask of y instead of y */
    bool joined;             /* backward's d_y is the gradient of the activation's argument */
    bool x, saved;           /* recompute reads x, and what forward saved */
};

static struct linking linking_open(const struct program *program, const struct instruction *at)
{
    struct linking l = {.program = program, .at = at};
    if (instruction_is_backward(at)) {
        if (at->op->reads) l.reads = at->op->reads(at->settings, at->phase);
        l.masked = operand(at, OPERAND_MASK, 0) >= 0;
        l.joined = operand(at, OPERAND_D_Y_SUMS, 0) >= 0;
    } else if (at->phase == PHASE_RECOMPUTE) {
        l.x = recompute_inputs(at) > 0;
        l.saved = recompute_keeps_saved(at->op);
    }
    return l;
}

/* True if a call whose op decides that reads an operand. */
static bool reads_asked(const struct linking *l, const struct operand *o)
{
    bool y = (l->reads & READS_Y) && !l->joined;
    if (l->at->phase == PHASE_RECOMPUTE) return l->x;
    if (o->role == OPERAND_X) return l->reads & (o->index == 0 ? READS_X | READS_FIRST_X : READS_X);
    if (o->role == OPERAND_Y) return y && !l->masked;
    if (o->role == OPERAND_MASK) return y || operand(l->at, OPERAND_D_X_ADDEND, 0) >= 0;
    return l->reads & (o->role == OPERAND_PARAM ? READS_PARAMS : READS_SAVED);
}

static unsigned row_access(const struct linking *l, const struct operand *o, enum operand_access access)
{
    switch (access) {
    case CALL_SHAPE: return ACCESS_SHAPE;
    case CALL_READ: return ACCESS_READ;
    case CALL_WRITE: return ACCESS_WRITE;
    case CALL_ASKED: return reads_asked(l, o) ? ACCESS_READ : ACCESS_SHAPE;
    case CALL_SHARED: return l->at->ranks > 0 ? ACCESS_READ : ACCESS_WRITE;
    case CALL_KEPT: return l->saved ? ACCESS_READ : ACCESS_WRITE;
    }
    return ACCESS_SHAPE;
}

static unsigned update_access(const struct linking *l, const struct operand *o)
{
    const struct op *op = l->at->op;
    bool moment = (int)o->index == op->moments.mean || (int)o->index == op->moments.variance;
    if (o->role == OPERAND_SAVED) return moment ? ACCESS_READ : ACCESS_SHAPE;
    if (o->role == OPERAND_WORKSPACE) return ACCESS_WRITE;
    if (o->role != OPERAND_PARAM) return ACCESS_SHAPE;
    const struct parameter *param = &l->program->graph->params[l->program->values[o->value].index];
    return param->spec.role == ROLE_STATISTIC ? ACCESS_READ | ACCESS_WRITE : ACCESS_READ;
}

static unsigned op_access(const struct linking *l, const struct operand *o)
{
    const struct operand_row *row = &operand_rows[o->role];
    switch (l->at->phase) {
    case PHASE_FORWARD: return row_access(l, o, row->forward);
    case PHASE_BACKWARD:
    case PHASE_BACKWARD_DATA:
    case PHASE_BACKWARD_PARAMS: return row_access(l, o, row->backward);
    case PHASE_UPDATE: return update_access(l, o);
    case PHASE_RECOMPUTE: return row_access(l, o, row->recompute);
    case PHASE_COUNT: break;
    }
    return ACCESS_SHAPE;
}

/* Access of instructions that are not an op's: the update writes parameters, all others y. */
static unsigned other_access(const struct operand *o)
{
    bool writes = o->role == OPERAND_PARAM || o->role == OPERAND_Y || o->role == OPERAND_WORKSPACE;
    return writes ? ACCESS_WRITE : ACCESS_READ;
}

static void mark_repeated(struct instruction *at, int k)
{
    for (const struct operand *o = at->operands; o < at->operands + k; o++)
        if (o->value == at->operands[k].value && (o->access & ACCESS_READ))
            at->operands[k].access |= ACCESS_REPEATED;
}

/* Lets `to` take the place of `from`, if both are operands and the op allows it in the phase. */
static void pair_in_place(const struct program *program, struct instruction *at, enum phase phase,
                          struct in_place pair)
{
    struct shape shapes[OP_MAX_INPUTS];
    int count = operand_count(at, OPERAND_X);
    for (int i = 0; i < count; i++) shapes[i] = program->values[operand_x(at, i)].shape;
    if (pair.from < 0 || pair.to < 0 || !at->op->in_place(at->settings, phase, count, shapes)) return;
    at->in_place[phase == PHASE_RECOMPUTE] = pair;
}

/* The in-place pairs that the op allows; liveness decides whether `from` dies there. */
static void link_in_place(const struct program *program, struct instruction *at)
{
    bool forward = at->phase == PHASE_FORWARD || at->phase == PHASE_RECOMPUTE;
    bool over_x = forward || (at->phase == PHASE_BACKWARD && at->op->backward_over_x);
    int x = operand_x(at, 0), over = over_x ? x : operand(at, OPERAND_D_Y, 0);
    int to = forward ? operand_y(at) : operand(at, OPERAND_D_X, 0);
    at->in_place[0] = at->in_place[1] = (struct in_place){-1, -1};
    if (!at->op->in_place || at->phase == PHASE_UPDATE || at->phase == PHASE_BACKWARD_PARAMS) return;
    pair_in_place(program, at, forward ? PHASE_FORWARD : at->phase, (struct in_place){over, to});
    pair_in_place(program, at, PHASE_RECOMPUTE, (struct in_place){x, operand(at, OPERAND_Y_RECOMPUTED, 0)});
}

static void link_op(const struct program *program, struct instruction *at)
{
    struct linking l = linking_open(program, at);
    for (int k = 0; k < at->operand_count; k++) {
        at->operands[k].access = op_access(&l, &at->operands[k]);
        if (at->operands[k].access & ACCESS_READ) mark_repeated(at, k);
    }
    link_in_place(program, at);
}

void instruction_link(const struct program *program, struct instruction *at)
{
    if (at->op) link_op(program, at);
    else
        for (int k = 0; k < at->operand_count; k++)
            at->operands[k].access = other_access(&at->operands[k]);
}

void build_push(struct program *program, struct instruction instruction)
{
    instruction_link(program, &instruction);
    *array_push(program->instructions, program->count) = instruction;
}

void build_remove(struct program *program, const bool *removed)
{
    int count = 0, first_backward = program->first_backward;
    for (int i = 0; i < program->count; i++) {
        if (removed[i]) instruction_free(&program->instructions[i]);
        else program->instructions[count++] = program->instructions[i];
        if (removed[i] && i < first_backward) program->first_backward--;
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
        FOR_WRITES(o, at) use_note(&uses[o->value].writer, i);
        FOR_READS(o, at) use_note(&uses[o->value].reader, i);
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
    int to = build_value(program, value, value_name);
    operand_set(&cast, OPERAND_X, 0, from);
    operand_set(&cast, OPERAND_Y, 0, to);
    build_push(program, cast);
    return to;
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

/* To which array_push may append. */
static void *list_copy(const void *list, int count, size_t size)
{
    int room = 1;
    while (room < count) room *= 2;
    if (count == 0) return NULL;
    return memcpy(memory_new((size_t)room, size), list, (size_t)count * size);
}

struct operand *operands_copy(const struct instruction *at)
{
    return list_copy(at->operands, at->operand_count, sizeof *at->operands);
}

struct instruction instruction_copy(const struct instruction *at)
{
    struct instruction copy = *at;
    copy.name = text_copy(at->name);
    copy.operands = operands_copy(at);
    copy.waits = list_copy(at->waits, at->wait_count, sizeof *copy.waits);
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
    if (program->node_stages) copy.node_stages = ids_copy(program->node_stages, program->graph->count);
    return copy;
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

/* The tensor of an operand. A gradient that was passed on has the element count of the tensor that it is of,
 * but may have another shape (flatten); code expects the tensor's. Those that join another may have more
 * channels or fewer pixels. */
static struct tensor operand_tensor(const struct program *program, const struct instruction *at,
                                    const struct operand *o)
{
    const struct value *value = &program->values[o->value];
    int of = operand(at, operand_rows[o->role].gradient_of, (int)o->index);
    bool same = of >= 0 && shape_count(value->shape) == shape_count(program->values[of].shape);
    return (struct tensor){.dtype = value->dtype, .shape = same ? program->values[of].shape : value->shape};
}

struct tensor *call_tensor(struct call *call, enum operand_role role, int index)
{
    struct tensor *const lists[] = {[OPERAND_X] = call->x, [OPERAND_D_X] = call->d_x,
                                    [OPERAND_PARAM] = call->params, [OPERAND_D_PARAM] = call->d_params,
                                    [OPERAND_SAVED] = call->saved};
    if (role == OPERAND_Y) return &call->y;
    if (role == OPERAND_D_Y) return &call->d_y;
    if (operand_is_list(role)) return &lists[role][index];
    assert(call->operand_count < CALL_MAX_OPERANDS || call_operand(call, role));
    return call_put(call, role);
}

struct call program_call(const struct program *program, int i, struct call_storage *storage)
{
    const struct instruction *at = &program->instructions[i];
    struct call call = {
        .op = at->op, .settings = at->settings, .phase = call_phase(at), .training = program->training,
        .x_count = operand_count(at, OPERAND_X), .param_count = operand_count(at, OPERAND_PARAM),
        .saved_count = operand_count(at, OPERAND_SAVED),
        .x = storage->x, .d_x = storage->d_x, .params = storage->params,
        .d_params = storage->d_params, .saved = storage->saved,
        .epilogue_count = at->epilogue_count, .ranks = at->ranks, .loss_weight = at->loss_weight,
    };
    for (int k = 0; k < call.x_count; k++) call.d_x[k] = (struct tensor){0};
    for (int k = 0; k < call.param_count; k++) call.d_params[k] = (struct tensor){0};
    for (int k = 0; k < call.saved_count; k++) call.saved[k] = (struct tensor){0};
    memcpy(call.epilogues, at->epilogues, sizeof call.epilogues);
    FOR_OPERANDS(o, at) {
        enum operand_role role = (enum operand_role)o->role;
        if (operand_rows[role].kind == OPERAND_KIND_SCRATCH) continue;
        *call_tensor(&call, role, (int)o->index) = operand_tensor(program, at, o);
    }
    return call;
}
