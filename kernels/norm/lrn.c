/* lrn: local response normalisation over channels (Krizhevsky et al. 2012), as torch.nn.LocalResponseNorm:
 *
 *     d[c] = k + alpha / size * sum of x[i]^2 over i in [c - size / 2, c + (size - 1) / 2]
 *     y[c] = x[c] * d[c]^-beta
 *
 * Backward: d_x[i] = d_y[i] * d[i]^-beta
 *                    - 2 alpha beta / size * x[i] * sum of d_y[c] * x[c] * d[c]^(-beta - 1) over c whose
 *                      window holds i: [i - (size - 1) / 2, i + size / 2] */
#include "kernels/norm/lrn.h"

#include <math.h>
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/elementwise.h"

static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

/* d of channel c of the pixel whose channels begin at `pixel`. */
static double lrn_divisor(const struct call *call, int64_t pixel, int64_t c)
{
    const struct lrn *s = call->settings;
    int64_t last = min_count(c + (s->size - 1) / 2, call->x[0].shape.c - 1);
    double sum = 0;
    for (int64_t i = max(c - s->size / 2, 0); i <= last; i++) {
        double x = tensor_get(&call->x[0], pixel + i);
        sum += x * x;
    }
    return s->k + s->alpha / (double)s->size * sum;
}

static enum status lrn_forward(const struct call *call)
{
    const struct lrn *s = call->settings;
    int64_t channels = call->y.shape.c;
    for (int64_t pixel = 0; pixel < shape_count(call->y.shape); pixel += channels)
        for (int64_t c = 0; c < channels; c++)
            tensor_set(&call->y, pixel + c,
                       tensor_get(&call->x[0], pixel + c) * pow(lrn_divisor(call, pixel, c), -s->beta));
    return OK;
}

static enum status lrn_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    const struct lrn *s = call->settings;
    int64_t channels = call->d_y.shape.c;
    for (int64_t pixel = 0; pixel < shape_count(call->d_y.shape); pixel += channels)
        for (int64_t i = 0; i < channels; i++) {
            double sum = 0;
            int64_t last = min_count(i + s->size / 2, channels - 1);
            for (int64_t c = max(i - (s->size - 1) / 2, 0); c <= last; c++)
                sum += tensor_get(&call->d_y, pixel + c) * tensor_get(&call->x[0], pixel + c) *
                       pow(lrn_divisor(call, pixel, c), -s->beta - 1);
            double own = tensor_get(&call->d_y, pixel + i) * pow(lrn_divisor(call, pixel, i), -s->beta);
            double factor = 2 * s->alpha * s->beta / (double)s->size;
            tensor_set(&call->d_x[0], pixel + i, own - factor * tensor_get(&call->x[0], pixel + i) * sum);
        }
    return OK;
}

static const struct field fields[] = {
    {.name = "size", .type = FIELD_INT, .offset = offsetof(struct lrn, size), .initial = "5",
     .min = 1, .max = 4096, .help = "Channels per window."},
    {.name = "alpha", .type = FIELD_REAL, .offset = offsetof(struct lrn, alpha), .initial = "1e-4",
     .min = 0, .max = 1e6, .help = "Factor of the mean square."},
    {.name = "beta", .type = FIELD_REAL, .offset = offsetof(struct lrn, beta), .initial = "0.75",
     .min = 0, .max = 100, .help = "Exponent of the divisor."},
    {.name = "k", .type = FIELD_REAL, .offset = offsetof(struct lrn, k), .initial = "1",
     .min = 1e-6, .max = 1e6, .help = "Constant added to the mean square."},
    {0},
};

static const struct op_code reference = {.forward = lrn_forward, .backward = lrn_backward};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 3, .w = 7, .c = 5}}},
    {"size=4 alpha=0.5 beta=0.9 k=2", 1, {{.rank = 4, .n = 1, .h = 7, .w = 7, .c = 24}}},
    {"size=3 alpha=1", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op lrn_op = {
    .name = "lrn",
    .help = "Local response normalisation across channels.",
    .settings_size = sizeof(struct lrn),
    .fields = fields,
    .shape = elementwise_shape,
    .reads = elementwise_reads_x,
    .reference = &reference,
    .cpu = &lrn_cpu,
    .cuda = ON_CUDA(lrn_cuda),
    .examples = examples,
};
