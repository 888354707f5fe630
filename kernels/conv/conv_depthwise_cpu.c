/* conv_depthwise_cpu.c: weight gradients of depthwise convolutions, for windows beyond those that the library
 * has code for (3x3). Arithmetic is fp32; 16 bits are widened first.
 *
 *   d_w[c, r, s] = sum over n, p, q of d_y[n, p, q, c] * x[n, p * stride + r * dilation - pad, ..., c]
 *
 * A piece is LANES channels of some of the images; its sums are a line for each tap. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/conv/conv.h"
#include "kernels/support/onednn.h"
#include "kernels/support/pixels_cpu.h"
#include "kernels/support/product.h"

#define LANES 32
#define PIECES 64   /* at least, if there are as many images */

struct depthwise {
    struct conv_geometry geometry;
    struct shape x, y;
    int64_t taps, blocks, parts;     /* blocks of channels times parts of the images */
};

static int64_t lines_of(const struct depthwise *d)
{
    return d->taps * LANES;
}

/* The output columns whose tap `s` is inside the image. */
struct span {
    int64_t first, end;
};

INLINE struct span span_of(const struct depthwise *d, int64_t s)
{
    int64_t stride = d->geometry.stride[1], before = d->geometry.pad[1] - s * d->geometry.dilation[1];
    int64_t first = before > 0 ? pieces(before, stride) : 0, end = pieces(d->x.w + before, stride);
    return (struct span){first, min_count(end, d->y.w)};
}

/* One tap of an output row. */
INLINE void add_products(const struct depthwise *d, const float *x, const float *d_y, int64_t count,
                         int64_t lanes, float *sums)
{
    ALIGNED float row[LANES] = {0};
    int64_t channels = d->x.c, step = d->geometry.stride[1] * channels;
    for (int64_t q = 0; q < count; q++, x += step, d_y += channels)
#pragma omp simd
        for (int64_t i = 0; i < lanes; i++) row[i] += x[i] * d_y[i];
#pragma omp simd
    for (int64_t i = 0; i < lanes; i++) sums[i] += row[i];
}

INLINE void add_rows(const struct depthwise *d, const float *x, const float *d_y, int64_t lanes, float *sums)
{
    const struct conv_geometry *g = &d->geometry;
    for (int64_t p = 0; p < d->y.h; p++, d_y += d->y.w * d->y.c)
        for (int64_t tap = 0; tap < d->taps; tap++) {
            int64_t r = tap / g->kernel[1], s = tap % g->kernel[1];
            int64_t h = p * g->stride[0] - g->pad[0] + r * g->dilation[0];
            struct span q = span_of(d, s);
            if (h < 0 || h >= d->x.h || q.first >= q.end) continue;
            int64_t w = q.first * g->stride[1] - g->pad[1] + s * g->dilation[1];
            add_products(d, x + (h * d->x.w + w) * d->x.c, d_y + q.first * d->y.c, q.end - q.first, lanes,
                         sums + tap * LANES);
        }
}

/* One image; the number of lanes is known to the compiler where they fill vectors. */
static EVERY_MACHINE(void, add_image, (const struct depthwise *d, const float *x, const float *d_y,
                     int64_t lanes, float *sums), (d, x, d_y, lanes, sums))
{
    if (lanes == LANES) add_rows(d, x, d_y, LANES, sums);
    else if (lanes == LANES / 2) add_rows(d, x, d_y, LANES / 2, sums);
    else add_rows(d, x, d_y, lanes, sums);
}

static void piece_run(const struct depthwise *d, const float *x, const float *d_y, int64_t piece, float *sums)
{
    int64_t channel = piece % d->blocks * LANES, part = piece / d->blocks, images = d->x.n;
    int64_t in = d->x.h * d->x.w * d->x.c, out = d->y.h * d->y.w * d->y.c;
    memset(sums, 0, (size_t)lines_of(d) * sizeof *sums);
    for (int64_t n = images * part / d->parts; n < images * (part + 1) / d->parts; n++)
        add_image(d, x + n * in + channel, d_y + n * out + channel, min_count(LANES, d->x.c - channel), sums);
}

static size_t sums_bytes(const struct depthwise *d)
{
    return onednn_align((size_t)(d->blocks * d->parts * lines_of(d)) * sizeof(float));
}

static size_t widened_bytes(const struct tensor *tensor)
{
    return tensor->dtype == F32 ? 0 : onednn_align((size_t)shape_count(tensor->shape) * sizeof(float));
}

static const float *widen(const struct tensor *tensor, void *to)
{
    if (tensor->dtype == F32) return tensor->data;
    product_convert(F32, to, tensor->dtype, tensor->data, shape_count(tensor->shape));
    return to;
}

static enum status depthwise_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct depthwise *d = plan->state;
    float *sums = call->workspace, *d_w = call->d_params[0].data;
    if (call->param_count > 1) pixels_bias_run(call);
    char *place = (char *)call->workspace + sums_bytes(d);
    const float *x = widen(&call->x[0], place);
    const float *d_y = widen(&call->d_y, place + widened_bytes(&call->x[0]));
#pragma omp parallel for schedule(static)
    for (int64_t piece = 0; piece < d->blocks * d->parts; piece++)
        piece_run(d, x, d_y, piece, sums + piece * lines_of(d));
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < d->x.c; c++)
        for (int64_t tap = 0; tap < d->taps; tap++) {
            double sum = 0;
            for (int64_t part = 0; part < d->parts; part++)
                sum += sums[(part * d->blocks + c / LANES) * lines_of(d) + tap * LANES + c % LANES];
            d_w[c * d->taps + tap] = (float)sum;
        }
    return OK;
}

static size_t workspace_of(const struct depthwise *d, const struct call *call)
{
    size_t products = sums_bytes(d) + widened_bytes(&call->x[0]) + widened_bytes(&call->d_y);
    size_t bias = call->param_count > 1 ? pixels_bias_workspace(call) : 0;
    return products > bias ? products : bias;
}

static bool depthwise_supports(const struct call *call)
{
    const struct tensor *x = &call->x[0];
    return call->phase == PHASE_BACKWARD_PARAMS && dtype_is_float(x->dtype) && x->dtype != F64 &&
           conv_geometry(call->settings, x->shape.c).groups == x->shape.c && call->d_y.shape.c == x->shape.c;
}

#define WORTH_TAPS 10

static bool depthwise_make(const struct call *call, struct kernel_plan *plan)
{
    const struct shape *x = &call->x[0].shape;
    struct conv_geometry g = conv_geometry(call->settings, x->c);
    int64_t blocks = pieces(x->c, LANES);
    if (!call->variant && g.kernel[0] * g.kernel[1] < WORTH_TAPS) return false;
    struct depthwise *d = plan->state = memory_new(1, sizeof *d);
    *d = (struct depthwise){
        .geometry = g, .x = *x, .y = call->d_y.shape, .taps = g.kernel[0] * g.kernel[1], .blocks = blocks,
        .parts = min_count(x->n, pieces(PIECES, blocks)),
    };
    plan->workspace = workspace_of(d, call);
    return true;
}

const struct algorithm conv_depthwise = {
    .name = "depthwise",
    .supports = depthwise_supports,
    .make = depthwise_make,
    .run = depthwise_run,
};
