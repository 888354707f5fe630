/* join_gradients.c: the output of a residual block is read by the next block's convolution and by its
 * residual, so its gradient is a sum. A folded batch norm's backward (kernels/norm/conv_batchnorm.c) needs
 * that sum masked by its activation, and the sums of the result by channel. If the convolution's data
 * gradient is the second summand to be computed, it produces all of this as it writes: batch norm needs no
 * sweep, and its residual's gradient is the same tensor.
 *
 * A batch norm in front of such a folded one needs two sums of its gradient, which code that gives_products
 * leaves as it writes that. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/rewrite/merging.h"
#include "compile/rewrite/rewrites.h"

struct joining {
    struct program *program;
    code_lookup *code_of;
    int *writer, *readers;       /* by value: the last instruction that writes it, or -1; how many read it */
};

static void joining_note(struct joining *j)
{
    for (int v = 0; v < j->program->value_count; v++) j->writer[v] = -1;
    for (int i = 0; i < j->program->count; i++) {
        const struct instruction *at = &j->program->instructions[i];
        FOR_WRITES(o, at) j->writer[o->value] = i;
        FOR_READS(o, at) j->readers[o->value]++;
    }
}

/* The data gradient that alone writes the taker's `gradient` after `other` exists; NULL: none. */
static struct instruction *giver_of(const struct joining *j, const struct instruction *taker, int gradient,
                                    int other)
{
    int writer = j->writer[gradient];
    if (writer < 0 || j->readers[gradient] != 1 || j->writer[other] >= writer) return NULL;
    struct instruction *giver = &j->program->instructions[writer];
    bool gives = giver->phase == PHASE_BACKWARD_DATA && merging_code(j->code_of, giver)->joins_gradients &&
                 operand(giver, OPERAND_D_X, 0) == gradient && operand_x(giver, 0) == operand_y(taker) &&
                 operand(giver, OPERAND_D_X_ADDEND, 0) < 0;
    return gives ? giver : NULL;
}

static int sums_new(struct program *program, const struct instruction *taker, int rows)
{
    const struct value *y = &program->values[operand_y(taker)];
    return build_sums(program, taker->node, rows, y->shape.c, text_format("d %s sums", y->name));
}

/* A projection of every second pixel leaves out the zeros between them, where only the giver reads it. */
static void pick(const struct joining *j, int gradient)
{
    struct value *value = &j->program->values[gradient];
    if (j->writer[gradient] < 0 || j->readers[gradient] != 1) return;
    const struct instruction *at = &j->program->instructions[j->writer[gradient]];
    const struct op_code *code = merging_code(j->code_of, at);
    if (!code->picks_gradient || operand(at, OPERAND_D_X, 0) != gradient) return;
    value->shape = code->picks_gradient(at->settings, value->shape);
    value_set_bytes(value);
}

/* Other readers of the joined gradient: the projection shortcut of the block. */
static void share_sums(const struct joining *j, int from, int gradient, int sums)
{
    for (int i = from; i < j->program->count; i++) {
        struct instruction *at = &j->program->instructions[i];
        bool takes = at->phase == PHASE_BACKWARD && operand(at, OPERAND_D_Y, 0) == gradient &&
                     operand(at, OPERAND_D_Y_ADDEND, 0) < 0 && operand(at, OPERAND_D_Y_SUMS, 0) < 0 &&
                     merging_code(j->code_of, at)->takes_joined &&
                     !(at->op->reads(at->settings, PHASE_BACKWARD) & READS_Y);
        if (!takes) continue;
        operand_set(at, OPERAND_D_Y_SUMS, 0, sums);
        instruction_link(j->program, at);
    }
}

static void join_at(const struct joining *j, int i)
{
    struct instruction *taker = &j->program->instructions[i];
    int d_y = operand(taker, OPERAND_D_Y, 0), more = operand(taker, OPERAND_D_Y_ADDEND, 0);
    int joined = operand(taker, OPERAND_D_X, 1), mask = operand(taker, OPERAND_MASK, 0);
    bool takes = taker->phase == PHASE_BACKWARD && mask >= 0 && more >= 0 && joined >= 0 &&
                 merging_code(j->code_of, taker)->takes_joined;
    if (!takes) return;
    struct instruction *giver = giver_of(j, taker, d_y, more);
    if (!giver) {
        giver = giver_of(j, taker, more, d_y);
        more = d_y;
    }
    if (!giver) return;
    int sums = sums_new(j->program, taker, 1);
    pick(j, more);
    operand_set(giver, OPERAND_D_X, 0, joined);
    epilogue_add(giver, EPILOGUE_ADD, OPERAND_D_X_ADDEND, more);
    epilogue_add(giver, EPILOGUE_MULTIPLY, OPERAND_MASK, mask);
    epilogue_add(giver, EPILOGUE_SUMS, OPERAND_D_X_SUMS, sums);
    operand_set(taker, OPERAND_D_Y, 0, joined);
    operand_set(taker, OPERAND_D_Y_SUMS, 0, sums);
    operand_set(taker, OPERAND_D_Y_ADDEND, 0, -1);
    operand_set(taker, OPERAND_D_X, 1, -1);
    instruction_link(j->program, giver);
    instruction_link(j->program, taker);
    share_sums(j, i + 1, joined, sums);
}

static bool gives_products(const struct joining *j, int i)
{
    const struct op_code *code = merging_code(j->code_of, &j->program->instructions[i]);
    struct call_storage storage;
    if (!code->gives_products) return false;
    struct call call = program_call(j->program, i, &storage);
    return code->gives_products(&call);
}

/* A batch norm between two convolutions, whose result's gradient only a folded convolution writes, gets its
 * sums with it. */
static void give_products(const struct joining *j, int i)
{
    struct instruction *taker = &j->program->instructions[i];
    const struct op_code *code = merging_code(j->code_of, taker);
    bool takes = taker->phase == PHASE_BACKWARD && code->takes_products &&
                 code->takes_products(taker->settings) && operand(taker, OPERAND_D_Y_ADDEND, 0) < 0 &&
                 operand(taker, OPERAND_RANK_SUMS, 0) < 0;
    int d_y = operand(taker, OPERAND_D_Y, 0), writer = takes ? j->writer[d_y] : -1;
    if (writer < 0 || j->readers[d_y] != 1) return;
    struct instruction *giver = &j->program->instructions[writer];
    bool gives = giver->op && giver->phase == PHASE_BACKWARD && operand(giver, OPERAND_D_X, 0) == d_y &&
                 operand_x(giver, 0) == operand_y(taker);
    if (!gives || !gives_products(j, writer)) return;
    int products = sums_new(j->program, taker, 2);
    epilogue_add(giver, EPILOGUE_PRODUCTS, OPERAND_X_PRODUCTS, products);
    operand_set(taker, OPERAND_Y_PRODUCTS, 0, products);
    instruction_link(j->program, giver);
    instruction_link(j->program, taker);
}

void join_gradients(struct program *program, code_lookup *code_of)
{
    struct joining j = {.program = program, .code_of = code_of};
    j.writer = memory_new((size_t)program->value_count, sizeof *j.writer);
    j.readers = memory_new((size_t)program->value_count, sizeof *j.readers);
    joining_note(&j);
    for (int i = 0; i < program->count; i++) join_at(&j, i);
    for (int i = 0; i < program->count; i++) give_products(&j, i);
    free(j.writer);
    free(j.readers);
}
