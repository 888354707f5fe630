/* rank_moments: what batch norm normalises by where several ranks share a micro-batch (train.sync_bn): the
 * moments of all, from those of each.
 *
 *     x    [R, 1, 2, c]: mean and unbiased variance by channel, of `count` numbers on each of R ranks
 *     y    the mean of all; saved: 1 / sqrt(variance + eps), of the biased variance, and the unbiased one
 *
 * They are joined one after the other (Chan, Golub, LeVeque 1979), in double, so that all ranks have the same
 * bits. */
#include "kernels/exchange/rank_moments.h"

#include <math.h>
#include <stddef.h>

#include "kernels/codes_cuda.h"

static bool rank_moments_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                               struct reason *reason)
{
    if (x[0].w != 2) return because(reason, "the input has %d rows, not 2", (int)x[0].w);
    *y = shape_vector(x[0].c);
    return true;
}

static int rank_moments_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                              struct op_saved out[OP_MAX_SAVED])
{
    out[RANK_INVSTD] = (struct op_saved){"invstd", F32, shape_vector(x[0].shape.c)};
    out[RANK_VARIANCE] = (struct op_saved){"variance", F32, shape_vector(x[0].shape.c)};
    return 2;
}

static enum status rank_moments_forward(const struct call *call)
{
    const struct rank_moments *s = call->settings;
    const struct tensor *x = &call->x[0];
    int64_t channels = call->x[0].shape.c;
    for (int64_t k = 0; k < channels; k++) {
        struct rank_sum sum = {0, 0, 0};
        for (int64_t rank = 0; rank < call->x[0].shape.n; rank++)
            rank_sum_add(&sum, tensor_get(x, 2 * rank * channels + k),
                         tensor_get(x, (2 * rank + 1) * channels + k), (double)s->count);
        double squares = sum.squares < 0 ? 0 : sum.squares;
        tensor_set(&call->y, k, sum.mean);
        tensor_set(&call->saved[RANK_INVSTD], k, 1 / sqrt(squares / sum.count + s->eps));
        tensor_set(&call->saved[RANK_VARIANCE], k, sum.count > 1 ? squares / (sum.count - 1) : 0);
    }
    return OK;
}

static const struct field fields[] = {
    {.name = "count", .type = FIELD_INT, .offset = offsetof(struct rank_moments, count), .min = 1,
     .max = 9e15, .help = "Numbers of a channel on each rank."},
    {.name = "eps", .type = FIELD_REAL, .offset = offsetof(struct rank_moments, eps), .min = 0, .max = 1,
     .help = "Added to the variance for numerical stability."},
    {0},
};

static const struct op_code reference = {.forward = rank_moments_forward};

#define MOMENTS(ranks, channels) {.rank = 4, .n = ranks, .h = 1, .w = 2, .c = channels}
static const struct op_example examples[] = {
    {"count=49 eps=1e-5", 1, {MOMENTS(2, 5)}},
    {"count=100352 eps=1e-3", 1, {MOMENTS(7, 1100)}},
    {"count=1 eps=1e-5", 1, {MOMENTS(1, 64)}},
    {0},
};

const struct op rank_moments_op = {
    .name = "rank_moments",
    .help = "Mean and variance of all ranks' numbers together.",
    .settings_size = sizeof(struct rank_moments),
    .fields = fields,
    .precision = CLASS_FULL,
    .internal = true,
    .shape = rank_moments_shape,
    .saved = rank_moments_saved,
    .reference = &reference,
    .cuda = ON_CUDA(rank_moments_cuda),
    .examples = examples,
};
