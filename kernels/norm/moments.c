/* moments: mean and unbiased variance of two sets of numbers together, from those of each, by channel (Chan,
 * Golub, LeVeque 1979):
 *
 *     x = mean_a and variance_a, of `a` numbers, and mean_b and variance_b, of `b`
 *     n = a + b,  d = mean_b - mean_a
 *     y = mean_a + d * b / n
 *     variance = ((a - 1) * variance_a + (b - 1) * variance_b + d^2 * a * b / n) / (n - 1) */
#include "kernels/norm/moments.h"

#include <stddef.h>

#include "kernels/codes_cuda.h"

static bool moments_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                          struct reason *reason)
{
    for (int i = 1; i < x_count; i++)
        if (!shape_equal(x[0], x[i])) return because(reason, "the inputs are of different sizes");
    *y = x[0];
    return true;
}

static int moments_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                         struct op_saved out[OP_MAX_SAVED])
{
    out[0] = (struct op_saved){"variance", F32, x[0].shape};
    return 1;
}

static enum status moments_forward(const struct call *call)
{
    const struct moments *s = call->settings;
    for (int64_t k = 0; k < shape_count(call->y.shape); k++) {
        double mean_a = tensor_get(&call->x[0], k), variance_a = tensor_get(&call->x[1], k);
        double mean_b = tensor_get(&call->x[2], k), variance_b = tensor_get(&call->x[3], k);
        double a = (double)s->a, b = (double)s->b, d = mean_b - mean_a;
        double squares = (a - 1) * variance_a + (b - 1) * variance_b + d * d * (a * b / (a + b));
        tensor_set(&call->y, k, mean_a + d * (b / (a + b)));
        tensor_set(&call->saved[0], k, squares / (a + b - 1));
    }
    return OK;
}

#define COUNT_MAX 9e15
static const struct field fields[] = {
    {.name = "a", .type = FIELD_INT, .offset = offsetof(struct moments, a), .min = 1, .max = COUNT_MAX,
     .help = "Numbers in the first set."},
    {.name = "b", .type = FIELD_INT, .offset = offsetof(struct moments, b), .min = 1, .max = COUNT_MAX,
     .help = "Numbers in the second set."},
    {0},
};

static const struct op_code reference = {.forward = moments_forward};

#define CHANNELS(count) {.rank = 1, .dim = {count, 1, 1, 1}}
static const struct op_example examples[] = {
    {"a=6 b=6", 4, {CHANNELS(5), CHANNELS(5), CHANNELS(5), CHANNELS(5)}},
    {"a=100352 b=50176", 4, {CHANNELS(1100), CHANNELS(1100), CHANNELS(1100), CHANNELS(1100)}},
    {"a=1 b=1", 4, {CHANNELS(1), CHANNELS(1), CHANNELS(1), CHANNELS(1)}},
    {0},
};

const struct op moments_op = {
    .name = "moments",
    .help = "Mean and variance of two sets of numbers together.",
    .settings_size = sizeof(struct moments),
    .fields = fields,
    .min_inputs = 4,
    .max_inputs = 4,
    .precision = CLASS_FULL,
    .internal = true,
    .shape = moments_shape,
    .saved = moments_saved,
    .reference = &reference,
    .cuda = ON_CUDA(moments_cuda),
    .examples = examples,
};
