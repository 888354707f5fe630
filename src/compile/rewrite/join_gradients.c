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
        for (int k = 0; k < at->write_count; k++) j->writer[at->writes[k]] = i;
        for (int k = 0; k < at->read_count; k++) j->readers[at->reads[k]]++;
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
                 giver->d_x[0] == gradient && giver->x[0] == taker->y && giver->d_x_more < 0;
    return gives ? giver : NULL;
}

static int sums_new(struct program *program, const struct instruction *taker, int rows)
{
    const struct value *y = &program->values[taker->y];
    return build_sums(program, taker->node, rows, y->shape.c, text_format("d %s sums", y->name));
}

/* A projection of every second pixel leaves out the zeros between them, where only the giver reads it. */
static void pick(const struct joining *j, int gradient)
{
    struct value *value = &j->program->values[gradient];
    if (j->writer[gradient] < 0 || j->readers[gradient] != 1) return;
    const struct instruction *at = &j->program->instructions[j->writer[gradient]];
    const struct op_code *code = merging_code(j->code_of, at);
    if (!code->picks_gradient || at->d_x[0] != gradient) return;
    value->shape = code->picks_gradient(at->settings, value->shape);
    value_set_bytes(value);
}

/* Other readers of the joined gradient: the projection shortcut of the block. */
static void share_sums(const struct joining *j, int from, int gradient, int sums)
{
    for (int i = from; i < j->program->count; i++) {
        struct instruction *at = &j->program->instructions[i];
        bool takes = at->phase == PHASE_BACKWARD && at->d_y == gradient && at->d_y_more < 0 &&
                     at->sums < 0 && merging_code(j->code_of, at)->takes_joined &&
                     !(at->op->reads(at->settings, PHASE_BACKWARD) & READS_Y);
        if (!takes) continue;
        at->sums = sums;
        instruction_link(j->program, at);
    }
}

static void join_at(const struct joining *j, int i)
{
    struct instruction *taker = &j->program->instructions[i];
    bool takes = taker->phase == PHASE_BACKWARD && taker->mask >= 0 && taker->d_y_more >= 0 &&
                 merging_code(j->code_of, taker)->takes_joined && taker->x_count > 1 && taker->d_x[1] >= 0;
    if (!takes) return;
    int d_y = taker->d_y, more = taker->d_y_more, joined = taker->d_x[1];
    struct instruction *giver = giver_of(j, taker, d_y, more);
    if (!giver) {
        giver = giver_of(j, taker, more, d_y);
        more = d_y;
    }
    if (!giver) return;
    giver->d_x[0] = taker->d_y = joined;
    giver->d_x_more = more;
    pick(j, more);
    giver->mask = taker->mask;
    giver->sums = taker->sums = sums_new(j->program, taker, 1);
    giver->sums_given = true;
    taker->d_y_more = taker->d_x[1] = -1;
    instruction_link(j->program, giver);
    instruction_link(j->program, taker);
    share_sums(j, i + 1, joined, taker->sums);
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
                 code->takes_products(taker->settings) && taker->d_y_more < 0 && taker->sums < 0;
    int writer = takes ? j->writer[taker->d_y] : -1;
    if (writer < 0 || j->readers[taker->d_y] != 1) return;
    struct instruction *giver = &j->program->instructions[writer];
    bool gives = giver->op && giver->phase == PHASE_BACKWARD && giver->d_x[0] == taker->d_y &&
                 giver->x[0] == taker->y;
    if (!gives || !gives_products(j, writer)) return;
    giver->x_products = taker->y_products = sums_new(j->program, taker, 2);
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
