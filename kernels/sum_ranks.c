/* sum_ranks: y[i] = x[0][i] + ... + x[R - 1][i], one x for each of R ranks, in the order of sum_tree.h: so R
 * ranks with a micro-batch each have the bits of one with R. fp32, rounded after each addition. */
#include "base/sum_tree.h"
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"

static bool shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                  struct reason *reason)
{
    *y = x[0];
    y->n = 1;
    return true;
}

static float sum_at(const float *x, int ranks, int64_t count)
{
    float stack[SUM_TREE_DEPTH], sum = 0;
    int depth = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sum = x[rank * count];
        for (int joins = sum_tree_joins(ranks, rank); joins > 0; joins--) sum = stack[--depth] + sum;
        stack[depth++] = sum;
    }
    return sum;
}

static enum status forward(const struct call *call)
{
    const float *x = call->x[0].data;
    float *y = call->y.data;
    int64_t count = shape_count(call->y.shape);
#pragma omp parallel for schedule(static) if (count > PARALLEL)
    for (int64_t i = 0; i < count; i++) y[i] = sum_at(x + i, (int)call->x[0].shape.n, count);
    return OK;
}

static const struct op_code reference = {.forward = forward};

#define SHAPE(n_, c_) {.rank = 4, .n = n_, .h = 1, .w = 1, .c = c_}
static const struct op_example examples[] = {
    {"", 1, {SHAPE(2, 64)}},
    {"", 1, {SHAPE(6, 1031)}},
    {"", 1, {SHAPE(8, 3)}},
    {0},
};

const struct op sum_ranks_op = {
    .name = "sum_ranks",
    .help = "Sum of the ranks' gradients.",
    .precision = CLASS_FULL,
    .internal = true,
    .shape = shape,
    .reference = &reference,
    .cuda = ON_CUDA(sum_ranks_cuda),
    .examples = examples,
};
