/* sum_ranks: y[i] = s[0][i] + ... + s[R - 1][i], a share of each of R ranks, in the order of sum_tree.h: so R
 * ranks with a micro-batch each have the bits of one with R. Additions are in fp32, each rounded to y's type.
 * x[0] holds all shares; if there is x[1], the share of `rank` is there instead. */
#include <stddef.h>

#include "base/sum_tree.h"
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/exchange/sum_ranks.h"

static bool shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                  struct reason *reason)
{
    *y = x[0];
    y->n = 1;
    return true;
}

static double share_get(const struct call *call, int rank, int64_t i)
{
    bool own = sum_ranks_own(call) == rank;
    return tensor_get(&call->x[own], own ? i : rank * shape_count(call->y.shape) + i);
}

static double rounded(enum dtype dtype, double x)
{
    double kept;
    dtype_set(dtype, &kept, 0, x);
    return dtype_get(dtype, &kept, 0);
}

static enum status forward(const struct call *call)
{
    int ranks = (int)call->x[0].shape.n;
    int64_t count = shape_count(call->y.shape);
    for (int64_t i = 0; i < count; i++) {
        double stack[SUM_TREE_DEPTH];
        int depth = 0;
        for (int rank = 0; rank < ranks; rank++) {
            stack[depth++] = share_get(call, rank, i);
            for (int joins = sum_tree_joins(ranks, rank); joins > 0; joins--, depth--)
                stack[depth - 2] = rounded(call->y.dtype, stack[depth - 2] + stack[depth - 1]);
        }
        tensor_set(&call->y, i, stack[0]);
    }
    return OK;
}

/* Numbers that are summed at once, so that all partial sums fit into the first-level cache. */
#define PIECE 256

static EVERY_MACHINE(void, add, (float *to, const float *x, int64_t count), (to, x, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) to[i] = to[i] + x[i];
}

static void round_to(enum dtype dtype, float *x, int64_t count)
{
    uint16_t kept[PIECE];
    if (dtype == F32) return;
    dtype_convert(dtype, kept, F32, x, (size_t)count);
    dtype_convert(F32, x, dtype, kept, (size_t)count);
}

static void sum_piece(const struct call *call, int64_t first, int64_t count)
{
    float stack[SUM_TREE_DEPTH][PIECE];
    const struct tensor *x = &call->x[0];
    int depth = 0, ranks = (int)x->shape.n;
    for (int rank = 0; rank < ranks; rank++) {
        bool own = sum_ranks_own(call) == rank;
        const void *from = own ? block_address(x + 1, first)
                               : block_address(x, rank * shape_count(call->y.shape) + first);
        dtype_convert(F32, stack[depth++], x->dtype, from, (size_t)count);
        for (int joins = sum_tree_joins(ranks, rank); joins > 0; joins--, depth--) {
            add(stack[depth - 2], stack[depth - 1], count);
            round_to(call->y.dtype, stack[depth - 2], count);
        }
    }
    dtype_convert(call->y.dtype, block_address(&call->y, first), F32, stack[0], (size_t)count);
}

static enum status forward_cpu(const struct call *call)
{
    int64_t count = shape_count(call->y.shape);
#pragma omp parallel for schedule(static) if (count > PARALLEL)
    for (int64_t first = 0; first < count; first += PIECE)
        sum_piece(call, first, min_count(PIECE, count - first));
    return OK;
}

static const struct op_code reference = {.forward = forward};
static const struct op_code cpu = {.forward = forward_cpu};

static const struct field fields[] = {
    {.name = "rank", .type = FIELD_INT, .offset = offsetof(struct sum_ranks, rank), .initial = "0",
     .help = "The rank whose share is the second input."},
    {0},
};

#define SHAPE(n_, c_) {.rank = 4, .n = n_, .h = 1, .w = 1, .c = c_}
static const struct op_example examples[] = {
    {"", 1, {SHAPE(2, 64)}},
    {"", 1, {SHAPE(6, 1031)}},
    {"", 1, {SHAPE(8, 3)}},
    {"rank=2", 2, {SHAPE(3, 1031), SHAPE(1, 1031)}},
    {"rank=0", 2, {SHAPE(2, 64), SHAPE(1, 64)}},
    {0},
};

const struct op sum_ranks_op = {
    .name = "sum_ranks",
    .help = "Sum of the ranks' gradients.",
    .settings_size = sizeof(struct sum_ranks),
    .fields = fields,
    .min_inputs = 1,
    .max_inputs = 2,
    .internal = true,
    .shape = shape,
    .reference = &reference,
    .cpu = &cpu,
    .cuda = ON_CUDA(sum_ranks_cuda),
    .examples = examples,
};
