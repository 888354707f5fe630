/* fuse_gradient_sums.c: merges instructions whose result is read only by the next one into that one or its
 * producer: sums of gradients, and the sums of batch statistics. */
#include "base/memory.h"
#include "compile/rewrite/merging.h"
#include "compile/rewrite/rewrites.h"

/* Whether the sum's input `k` is the same at all pixels of an image, and nobody else reads it. */
static bool is_flat(const struct merging *m, int sum, int k)
{
    const struct value_uses *uses = &m->uses[operand_x(&m->program->instructions[sum], k)];
    if (uses->writer < 0 || uses->reader != sum) return false;
    const struct instruction *writer = &m->program->instructions[uses->writer];
    return instruction_is_backward(writer) && writer->op && writer->op->flat_gradient;
}

static void leave_pixel(struct value *value)
{
    value->shape.h = value->shape.w = 1;
    value_set_bytes(value);
}

/* d = a + b, where one backward, whose code can add, reads d as its d_y. Of a summand that is the same at all
 * pixels of an image one pixel is left. */
static void merge_sum(struct merging *m, int i)
{
    struct instruction *sum = &m->program->instructions[i];
    const struct value_uses *uses = &m->uses[operand_y(sum)];
    if (sum->op != build_op("sum") || uses->writer != i || uses->reader < 0) return;
    struct instruction *into = &m->program->instructions[uses->reader];
    if (into->phase != PHASE_BACKWARD || operand(into, OPERAND_D_Y, 0) != operand_y(sum) ||
        operand(into, OPERAND_D_Y_ADDEND, 0) >= 0) return;
    const struct op_code *code = merging_code(m->code_of, into);
    if (!code->adds_gradients) return;
    int more = is_flat(m, i, 0) ? 0 : 1;
    operand_set(into, OPERAND_D_Y, 0, operand_x(sum, 1 - more));
    operand_set(into, OPERAND_D_Y_ADDEND, 0, operand_x(sum, more));
    if (code->adds_flat && is_flat(m, i, more)) leave_pixel(&m->program->values[operand_x(sum, more)]);
    instruction_link(m->program, into);
    m->gone[i] = true;
}

static int64_t pixels_of(const struct program *program, int id)
{
    return shape_count(program->values[id].shape) / program->values[id].shape.c;
}

/* Rows of sums that the giver can write for the taker; 0: none. */
static int rows_of_sums(const struct merging *m, const struct instruction *giver,
                        const struct instruction *taker)
{
    const struct op_code *gives = merging_code(m->code_of, giver), *takes = merging_code(m->code_of, taker);
    int y = operand_y(giver);
    if (giver->phase != PHASE_FORWARD || y != operand_x(taker, 0)) return 0;
    if (takes->takes_sums) return gives->gives_sums && operand(giver, OPERAND_Y_MOMENTS, 0) < 0 ? 2 : 0;
    bool whole = pixels_of(m->program, operand_y(taker)) == pixels_of(m->program, y);
    bool free = operand(giver, OPERAND_Y_SUMS, 0) < 0;
    bool stored = takes->takes_y_sums && gives->gives_y_sums && free && whole;
    if (!stored || !gives->gives_y_sums(giver->settings)) return 0;
    int64_t channels = m->program->values[y].shape.c;
    return takes->takes_gram && gives->gives_gram && gives->gives_gram(channels) ? 1 + (int)channels : 1;
}

/* The op that writes x[0] of an op that accepts sums also writes the sums. */
static void merge_statistics(struct merging *m, int i)
{
    struct program *program = m->program;
    struct instruction *taker = &program->instructions[i];
    int x = operand_x(taker, 0);
    if (taker->phase != PHASE_FORWARD || x < 0 || m->uses[x].writer < 0) return;
    struct instruction *giver = &program->instructions[m->uses[x].writer];
    int rows = rows_of_sums(m, giver, taker);
    if (rows == 0) return;
    int sums = build_sums(program, taker->node, rows, program->values[x].shape.c,
                          text_format("%s sums", program->values[x].name));
    enum epilogue_kind kind = rows == 2 ? EPILOGUE_MOMENTS : rows == 1 ? EPILOGUE_SUMS : EPILOGUE_GRAM;
    operand_set(taker, rows == 2 ? OPERAND_X_MOMENTS : OPERAND_X_SUMS, 0, sums);
    epilogue_add(giver, kind, rows == 2 ? OPERAND_Y_MOMENTS : OPERAND_Y_SUMS, sums);
    instruction_link(program, giver);
    instruction_link(program, taker);
}

enum status fuse_gradient_sums(struct program *program, code_lookup *code_of)
{
    struct merging m = merging_open(program, code_of);
    for (int i = 0; i < program->count; i++) merge_sum(&m, i);
    bool low = program->training && program->storage != F32;
    for (int i = 0; low && i < program->count; i++) merge_statistics(&m, i);
    merging_close(&m);
    return OK;
}
