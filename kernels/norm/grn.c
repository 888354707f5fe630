/* grn: global response normalisation (Woo et al. 2023, ConvNeXt V2), as timm has it: channels of an image
 * compete by their norms over its pixels,
 *
 *     g[c] = sqrt(sum over h, w of x^2),   r[c] = g[c] / (mean of g + eps),
 *     y = x * (1 + weight * r) + bias
 *
 * Backward, with s[c] = sum over h, w of d_y * x, e[c] = weight * s, m = mean of g + eps, and means over c:
 *     d_weight = sum over n of r * s,   d_bias = sum over n, h, w of d_y
 *     d_g = (e - mean(e * r)) / m,      d_x = d_y * (1 + weight * r) + x * d_g / g
 * where the last term is 0 if g is. */
#include "kernels/norm/grn.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kernels/codes_cuda.h"
#include "kernels/elementwise/elementwise.h"

static int grn_params(const void *settings, int x_count, const struct shape *x,
                      struct op_param out[OP_MAX_PARAMS])
{
    out[0] = (struct op_param){"weight", shape_vector(x[0].c), ROLE_NORM, F32, INIT_ZERO, 0, 0, 0};
    out[1] = (struct op_param){"bias", shape_vector(x[0].c), ROLE_NORM, F32, INIT_ZERO, 0, 0, 0};
    return 2;
}

static int grn_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                     struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    out[0] = (struct op_saved){"norms", F32, shape_vector(x[0].shape.n * x[0].shape.c)};
    return 1;
}

static unsigned grn_reads(const void *settings, enum phase phase)
{
    return READS_X | READS_PARAMS | READS_SAVED;
}

/* The norms of an image's channels into g[c], rounded as they are saved. Returns their mean + eps. */
static double reference_norms(const struct call *call, int64_t image, double *g)
{
    const struct grn *s = call->settings;
    struct shape x = call->x[0].shape;
    double sum = 0;
    for (int64_t c = 0; c < x.c; c++) {
        double squares = 0;
        for (int64_t p = 0; p < x.h * x.w && call->phase == PHASE_FORWARD; p++) {
            double value = tensor_get(&call->x[0], (image * x.h * x.w + p) * x.c + c);
            squares += value * value;
        }
        g[c] = sqrt(squares);
        if (call->saved_count > 0 && call->phase == PHASE_FORWARD)
            tensor_set(&call->saved[0], image * x.c + c, g[c]);
        if (call->saved_count > 0) g[c] = tensor_get(&call->saved[0], image * x.c + c);
        sum += g[c];
    }
    return sum / (double)x.c + s->eps;
}

static enum status grn_normalise(const struct call *call)
{
    struct shape x = call->x[0].shape;
    double *g = memory_new((size_t)x.c, sizeof *g);
    for (int64_t n = 0; n < x.n; n++) {
        double mean = reference_norms(call, n, g);
        for (int64_t i = n * x.h * x.w * x.c; i < (n + 1) * x.h * x.w * x.c; i++) {
            double factor = 1 + tensor_get(&call->params[0], i % x.c) * g[i % x.c] / mean;
            tensor_set(&call->y, i,
                       factor * tensor_get(&call->x[0], i) + tensor_get(&call->params[1], i % x.c));
        }
    }
    free(g);
    return OK;
}

/* sum over h, w of d_y * x, or of d_y alone. */
static double pixel_sum(const struct call *call, int64_t image, int64_t c, bool product)
{
    struct shape x = call->x[0].shape;
    double sum = 0;
    for (int64_t p = image * x.h * x.w; p < (image + 1) * x.h * x.w; p++) {
        double d_y = tensor_get(&call->d_y, p * x.c + c);
        sum += product ? d_y * tensor_get(&call->x[0], p * x.c + c) : d_y;
    }
    return sum;
}

static void backward_image(const struct call *call, int64_t image, const double *g, double mean)
{
    struct shape x = call->x[0].shape;
    double *e = memory_new((size_t)x.c, sizeof *e), common = 0;
    for (int64_t c = 0; c < x.c; c++) {
        e[c] = tensor_get(&call->params[0], c) * pixel_sum(call, image, c, true);
        common += e[c] * g[c] / mean / (double)x.c;
    }
    for (int64_t i = image * x.h * x.w * x.c; i < (image + 1) * x.h * x.w * x.c; i++) {
        int64_t c = i % x.c;
        double tilt = g[c] > 0 ? (e[c] - common) / mean / g[c] : 0;
        tensor_set(&call->d_x[0], i,
                   tensor_get(&call->d_y, i) * (1 + tensor_get(&call->params[0], c) * g[c] / mean) +
                       tensor_get(&call->x[0], i) * tilt);
    }
    free(e);
}

static enum status grn_backward(const struct call *call)
{
    struct shape x = call->x[0].shape;
    double *g = memory_new((size_t)x.c, sizeof *g), *sums = memory_new((size_t)(2 * x.c), sizeof *sums);
    for (int64_t n = 0; n < x.n; n++) {
        double mean = reference_norms(call, n, g);
        for (int64_t c = 0; c < x.c; c++) {
            sums[c] += g[c] / mean * pixel_sum(call, n, c, true);
            sums[x.c + c] += pixel_sum(call, n, c, false);
        }
        if (call->d_x[0].data) backward_image(call, n, g, mean);
    }
    for (int64_t i = 0; i < 2 * x.c; i++)
        if (call->d_params[i / x.c].data) tensor_set(&call->d_params[i / x.c], i % x.c, sums[i]);
    free(g);
    free(sums);
    return OK;
}

static const struct field fields[] = {
    {.name = "eps", .type = FIELD_REAL, .offset = offsetof(struct grn, eps), .initial = "1e-6", .min = 0,
     .max = 1, .help = "Added to the mean norm."},
    {0},
};

static const struct op_code reference = {
    .forward = grn_normalise,
    .backward = grn_backward,
    .recompute = grn_normalise,
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 1, {SHAPE(3, 7, 7, 24)}},
    {"eps=1e-3", 1, {SHAPE(2, 5, 7, 5)}},
    {"", 1, {SHAPE(5, 3, 1, 776)}},
    {"", 1, {SHAPE(1, 1, 1, 7)}},
    {0},
};

static const struct op_example large[] = {
    {"", 1, {SHAPE(8, 56, 56, 96)}},
    {0},
};

const struct op grn_op = {
    .name = "grn",
    .help = "Global response normalisation: channels of an image compete by their norms.",
    .settings_size = sizeof(struct grn),
    .fields = fields,
    .shape = elementwise_shape,
    .params = grn_params,
    .saved = grn_saved,
    .reads = grn_reads,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &grn_cpu,
    .cuda = ON_CUDA(grn_cuda),
    .examples = examples,
    .large = large,
};
