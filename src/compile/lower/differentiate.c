/* differentiate.c: adds the backward pass to a forward program: the instructions of each micro-batch in
 * reverse, sums where several gradients of one tensor meet, and the update at the end.
 *
 * Gradients of one tensor are added in the order in which they are computed, two at a time, so that at most
 * two are alive; those of a parameter, one per micro-batch, are added as sum_tree.h says. The pairs depend on
 * the graph and the number of micro-batches only, never on the plan. */
#include <stdlib.h>

#include "base/memory.h"
#include "base/sum_tree.h"
#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"

/* The sums so far of a parameter's gradients: value ids. */
struct partial_sums {
    int sum[SUM_TREE_DEPTH];
    int count;
};

struct backward {
    struct program *program;
    bool *wanted;            /* by value: its gradient leads to a trained parameter */
    int *gradient;           /* by value: the value that holds its gradient so far; -1 */
    int value_count;         /* of the forward-only program */
    struct partial_sums *partial;   /* by parameter */
};

static bool param_trained(const struct program *program, int value)
{
    return program_param_trained(&program->graph->params[program->values[value].index]);
}

static bool any_trained(const struct program *program, const struct instruction *forward)
{
    FOR_OPERANDS(o, forward)
        if (o->role == OPERAND_PARAM && param_trained(program, o->value)) return true;
    return false;
}

static bool input_wanted(const struct backward *b, const struct instruction *forward, int i)
{
    bool refused = forward->op->no_gradient && forward->op->no_gradient(i);
    return !refused && b->wanted[operand_x(forward, i)];
}

static bool any_input_wanted(const struct backward *b, const struct instruction *forward)
{
    for (int i = 0; i < operand_count(forward, OPERAND_X); i++)
        if (input_wanted(b, forward, i)) return true;
    return false;
}

static void mark_wanted(struct backward *b, const struct instruction *forward, int count)
{
    for (int i = 0; i < count; i++)
        b->wanted[operand_y(&forward[i])] =
            any_trained(b->program, &forward[i]) || any_input_wanted(b, &forward[i]);
}

/* y = a + b as an instruction, of micro-batch `number`. Which of the two is x[0], with which y may share
 * memory, is decided when all readers are known (sums_order). */
static int push_sum(struct program *program, const int x[2], struct value value, enum dtype round, int number)
{
    const struct op *op = build_op(round == F32 ? "sum" : "sum_rounded");
    const void *settings =
        round == F32 ? NULL : build_settings(program, op, text_format("to=%s", dtype_table[round].name));
    char *name = text_format("sum of %s", value.name);
    struct instruction sum = instruction_new(PHASE_FORWARD, op, settings, name);
    sum.micro_batch = number;
    int y = build_value(program, value, value.name);
    operand_set(&sum, OPERAND_X, 0, x[0]);
    operand_set(&sum, OPERAND_X, 1, x[1]);
    operand_set(&sum, OPERAND_Y, 0, y);
    build_push(program, sum);
    return y;
}

static struct value gradient_value(const struct program *program, int of)
{
    struct value value = program->values[of];
    value.home = HOME_ARENA;
    value.kind = KIND_GRADIENT;
    value.index = -1;
    return value;
}

/* `gradient` is one more consumer's gradient for the tensor x. */
static void gradient_arrives(struct backward *b, const struct instruction *forward, int x, int gradient)
{
    if (b->gradient[x] < 0) {
        b->gradient[x] = gradient;
        return;
    }
    struct value value = gradient_value(b->program, x);
    value.name = text_format("d %s", value.name);
    int both[] = {b->gradient[x], gradient};
    b->gradient[x] = push_sum(b->program, both, value, F32, forward->micro_batch);
}

static void gradients_of_inputs(struct backward *b, const struct instruction *forward, struct instruction *at)
{
    for (int i = 0; i < operand_count(forward, OPERAND_X); i++) {
        if (!input_wanted(b, forward, i)) continue;
        struct value value = gradient_value(b->program, operand_x(forward, i));
        operand_set(at, OPERAND_D_X, i, build_value(b->program, value, text_format("d %s", value.name)));
    }
}

/* An op's code computes the gradients of all its parameters at once; those of frozen ones are written and
 * never read. */
static void gradients_of_params(struct backward *b, struct instruction *at)
{
    struct program *program = b->program;
    for (int i = 0; i < operand_count(at, OPERAND_PARAM); i++) {
        struct value value = program->values[operand(at, OPERAND_PARAM, i)];
        if (program->graph->params[value.index].spec.role == ROLE_STATISTIC) continue;
        value.home = HOME_ARENA;
        value.kind = KIND_PARAM_GRADIENT;
        value.dtype = F32;
        operand_set(at, OPERAND_D_PARAM, i, build_value(program, value, text_format("d %s", value.name)));
    }
}

static void param_arrives(struct backward *b, const struct instruction *forward, int param, int gradient)
{
    struct partial_sums *partial = &b->partial[param];
    partial->sum[partial->count++] = gradient;
    for (int joins = sum_tree_joins(b->program->micro_batches, forward->micro_batch); joins > 0; joins--) {
        struct value value = b->program->values[gradient];
        int *sum = &partial->sum[--partial->count - 1];
        value.name = text_copy(value.name);
        *sum = push_sum(b->program, sum, value, b->program->wire, forward->micro_batch);
    }
    b->program->gradients[param] = partial->sum[0];
}

/* Adds the gradients of a micro-batch to those of the preceding ones. */
static void params_arrive(struct backward *b, const struct instruction *forward, const struct instruction *at)
{
    FOR_OPERANDS(o, at) {
        int param = o->role == OPERAND_D_PARAM ? operand(at, OPERAND_PARAM, (int)o->index) : -1;
        if (param >= 0 && param_trained(b->program, param))
            param_arrives(b, forward, b->program->values[param].index, o->value);
    }
}

static void push_backward(struct backward *b, const struct instruction *forward, enum phase phase)
{
    struct instruction at = instruction_after(b->program, forward, phase);
    if (phase != PHASE_BACKWARD_PARAMS) gradients_of_inputs(b, forward, &at);
    if (phase != PHASE_BACKWARD_DATA) gradients_of_params(b, &at);
    operand_set(&at, OPERAND_D_Y, 0, b->gradient[operand_y(forward)]);
    build_push(b->program, at);
    params_arrive(b, forward, &at);
    FOR_OPERANDS(o, &at)
        if (o->role == OPERAND_D_X)
            gradient_arrives(b, forward, operand_x(forward, (int)o->index), o->value);
}

static bool passes_on(const struct backward *b, const struct instruction *forward)
{
    struct shape shapes[OP_MAX_INPUTS];
    if (!forward->op->passes_gradient) return false;
    int count = operand_count(forward, OPERAND_X);
    for (int i = 0; i < count; i++) shapes[i] = b->program->values[operand_x(forward, i)].shape;
    return forward->op->passes_gradient(forward->settings, count, shapes);
}

/* Weight gradients come before the data gradient, so that values that only they read can be freed before the
 * data gradient is allocated. */
static void backward_of(struct backward *b, const struct instruction *forward)
{
    int d_y = b->gradient[operand_y(forward)];
    if (!b->wanted[operand_y(forward)] || (d_y < 0 && !forward->op->root)) return;
    if (passes_on(b, forward)) {
        for (int i = 0; i < operand_count(forward, OPERAND_X); i++)
            if (input_wanted(b, forward, i)) gradient_arrives(b, forward, operand_x(forward, i), d_y);
        return;
    }
    const struct op_code *code = forward->op->reference;
    if (code->backward && !code->backward_data) {
        push_backward(b, forward, PHASE_BACKWARD);
        return;
    }
    if (code->backward_params && any_trained(b->program, forward))
        push_backward(b, forward, PHASE_BACKWARD_PARAMS);
    if (any_input_wanted(b, forward)) push_backward(b, forward, PHASE_BACKWARD_DATA);
}

/* The optimizer reads every gradient and the masters, and writes the masters and what ops read. */
void optimizer_link(const struct program *program, struct instruction *update)
{
    int workspace = operand(update, OPERAND_WORKSPACE, 0);
    update->operand_count = 0;
    for (int gradients = 0; gradients < 2; gradients++)
        for (int v = 0, index = 0; v < program->value_count; v++) {
            const struct value *value = &program->values[v];
            int gradient = value->home == HOME_PARAM ? program->gradients[value->index] : -1;
            if (gradient < 0) continue;
            if (gradients) operand_set(update, OPERAND_D_PARAM, index++, gradient);
            else operand_set(update, OPERAND_PARAM, index++, v);
        }
    operand_set(update, OPERAND_WORKSPACE, 0, workspace);
    instruction_link(program, update);
}

void update_set_workspace(struct program *program, int64_t bytes)
{
    struct value value = {.home = HOME_ARENA, .kind = KIND_WORKSPACE, .dtype = U8, .node = -1, .index = -1,
                          .shape = shape_vector(bytes)};
    for (int i = 0; bytes > 0 && i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        if (at->kind != INSTRUCTION_UPDATE) continue;
        int workspace = build_value(program, value, text_format("%s workspace", at->name));
        operand_set(at, OPERAND_WORKSPACE, 0, workspace);
        instruction_link(program, at);
    }
}

static void push_optimizer(struct program *program)
{
    struct instruction update = instruction_new(PHASE_UPDATE, NULL, NULL, text_copy("update"));
    update.kind = INSTRUCTION_UPDATE;
    update.micro_batch = program->micro_batches - 1;
    optimizer_link(program, &update);
    build_push(program, update);
}

/* True if train.freeze names statistics of the op. */
static bool statistics_kept(const struct program *program, const struct instruction *at)
{
    FOR_OPERANDS(o, at) {
        if (o->role != OPERAND_PARAM) continue;
        const struct parameter *parameter = &program->graph->params[program->values[o->value].index];
        if (parameter->spec.role == ROLE_STATISTIC && parameter->frozen) return true;
    }
    return false;
}

static void push_statistics(const struct backward *b, const struct instruction *forward, int count)
{
    for (int i = 0; i < count; i++)
        if (forward[i].op->reference->update && !statistics_kept(b->program, &forward[i]))
            build_push(b->program, instruction_after(b->program, &forward[i], PHASE_UPDATE));
}

/* A sum can only be in place over its first input, so that is the one with no later readers. The order does
 * not change the bits of a sum of two. */
static void sums_order(struct program *program)
{
    const struct op *op = build_op("sum");
    int *last_read = memory_new((size_t)program->value_count, sizeof *last_read);
    for (int i = 0; i < program->count; i++)
        FOR_READS(o, &program->instructions[i]) last_read[o->value] = i;
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        if (at->op != op || last_read[operand_x(at, 0)] == i || last_read[operand_x(at, 1)] != i) continue;
        int first = operand_x(at, 0);
        operand_set(at, OPERAND_X, 0, operand_x(at, 1));
        operand_set(at, OPERAND_X, 1, first);
        instruction_link(program, at);
    }
    free(last_read);
}

void backward(struct program *program)
{
    struct instruction *forward = program->instructions;
    int count = program->count;
    struct backward b = {.program = program, .value_count = program->value_count};
    b.wanted = memory_new((size_t)b.value_count, sizeof *b.wanted);
    b.gradient = memory_new((size_t)b.value_count, sizeof *b.gradient);
    b.partial = memory_new((size_t)program->graph->param_count, sizeof *b.partial);
    for (int v = 0; v < b.value_count; v++) b.gradient[v] = -1;
    mark_wanted(&b, forward, count);
    program->instructions = NULL;
    program->count = 0;
    for (int begin = 0, end; begin < count; begin = end) {
        for (end = begin; end < count && forward[end].micro_batch == forward[begin].micro_batch; end++)
            build_push(program, forward[end]);
        if (begin == 0) program->first_backward = end;
        for (int i = end - 1; i >= begin; i--) backward_of(&b, &forward[i]);
    }
    push_optimizer(program);
    push_statistics(&b, forward, count);
    sums_order(program);
    free(b.wanted);
    free(b.gradient);
    free(b.partial);
    free(forward);
}
