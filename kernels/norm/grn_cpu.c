/* grn_cpu.c: grn in fp32, an image after another on each thread. Every image has lines of one element per
 * channel in the workspace, so that sums over images do not depend on the threads. */
#include "kernels/norm/grn.h"

#include <math.h>
#include <string.h>

#include "kernels/support/pixels_cpu.h"

enum { FACTOR, TILT, PRODUCTS, SUMS, LINES = SUMS + 4 };   /* behind SUMS: three buffers of a pixel */

static EVERY_MACHINE(void, apply_line, (const float *a, const float *by, const float *b, const float *times,
                     float *y, int64_t count), (a, by, b, times, y, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = a[i] * by[i] + b[i] * times[i];
}

static EVERY_MACHINE(void, apply_bias, (const float *a, const float *by, const float *bias, float *y,
                     int64_t count), (a, by, bias, y, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = a[i] * by[i] + bias[i];
}

static float *lines_of(const struct call *call, int64_t image)
{
    return (float *)call->workspace + image * LINES * call->x[0].shape.c;
}

static float mean_norm(const struct call *call, const float *norms, int64_t channels)
{
    const struct grn *s = call->settings;
    float sum = 0;
    for (int64_t c = 0; c < channels; c++) sum += norms[c];
    return sum / (float)channels + (float)s->eps;
}

/* The image's norms: as they were saved, or from x. */
static const float *image_norms(const struct call *call, int64_t image, float *lines)
{
    struct shape x = call->x[0].shape;
    float *norms = call->saved_count > 0 ? (float *)call->saved[0].data + image * x.c : lines + SUMS * x.c;
    if (call->phase != PHASE_FORWARD) return norms;
    memset(norms, 0, (size_t)x.c * sizeof *norms);
    for (int64_t p = image * x.h * x.w; p < (image + 1) * x.h * x.w; p++) {
        const float *at = block_load(&call->x[0], p * x.c, x.c, lines + (SUMS + 1) * x.c);
        pixels_add_products(at, at, norms, x.c);
    }
    for (int64_t c = 0; c < x.c; c++) norms[c] = sqrtf(norms[c]);
    return norms;
}

static void normalise_image(const struct call *call, int64_t image)
{
    struct shape x = call->x[0].shape;
    float *lines = lines_of(call, image), *factor = lines + FACTOR * x.c, *buffer = lines + (SUMS + 1) * x.c;
    const float *norms = image_norms(call, image, lines), *weight = call->params[0].data;
    float mean = mean_norm(call, norms, x.c);
    for (int64_t c = 0; c < x.c; c++) factor[c] = 1 + weight[c] * (norms[c] / mean);
    for (int64_t p = image * x.h * x.w; p < (image + 1) * x.h * x.w; p++) {
        float *y = block_open(&call->y, p * x.c, buffer + x.c);
        apply_bias(block_load(&call->x[0], p * x.c, x.c, buffer), factor, call->params[1].data, y, x.c);
        block_store(&call->y, p * x.c, x.c, y);
    }
}

/* The factors of d_y and x in d_x; PRODUCTS becomes the image's part of the weight's gradient. */
static void gradient_factors(const struct call *call, int64_t image, float *lines)
{
    int64_t channels = call->x[0].shape.c;
    float *factor = lines + FACTOR * channels, *tilt = lines + TILT * channels;
    float *products = lines + PRODUCTS * channels;
    const float *norms = image_norms(call, image, lines), *weight = call->params[0].data;
    float mean = mean_norm(call, norms, channels), common = 0;
    for (int64_t c = 0; c < channels; c++) {
        float share = norms[c] / mean;
        factor[c] = 1 + weight[c] * share;
        tilt[c] = weight[c] * products[c];
        common += tilt[c] * share;
        products[c] *= share;
    }
    common /= (float)channels;
    for (int64_t c = 0; c < channels; c++)
        tilt[c] = norms[c] > 0 ? (tilt[c] - common) / mean / norms[c] : 0;
}

static void backward_image(const struct call *call, int64_t image)
{
    struct shape x = call->x[0].shape;
    float *lines = lines_of(call, image), *buffer = lines + (SUMS + 1) * x.c;
    memset(lines + PRODUCTS * x.c, 0, (size_t)(2 * x.c) * sizeof *lines);
    for (int64_t p = image * x.h * x.w; p < (image + 1) * x.h * x.w; p++) {
        const float *d_y = block_load(&call->d_y, p * x.c, x.c, buffer);
        const float *at = block_load(&call->x[0], p * x.c, x.c, buffer + x.c);
        pixels_add_products(d_y, at, lines + PRODUCTS * x.c, x.c);
        pixels_add(d_y, lines + SUMS * x.c, x.c);
    }
    gradient_factors(call, image, lines);
    for (int64_t p = image * x.h * x.w; call->d_x[0].data && p < (image + 1) * x.h * x.w; p++) {
        const float *d_y = block_load(&call->d_y, p * x.c, x.c, buffer);
        const float *at = block_load(&call->x[0], p * x.c, x.c, buffer + x.c);
        float *d_x = block_open(&call->d_x[0], p * x.c, buffer + 2 * x.c);
        apply_line(d_y, lines + FACTOR * x.c, at, lines + TILT * x.c, d_x, x.c);
        block_store(&call->d_x[0], p * x.c, x.c, d_x);
    }
}

static size_t grn_workspace(const struct call *call)
{
    return (size_t)(call->x[0].shape.n * LINES * call->x[0].shape.c) * sizeof(float);
}

static enum status grn_normalise(const struct call *call)
{
    struct shape x = call->x[0].shape;
#pragma omp parallel for schedule(static) if (shape_count(x) > PARALLEL)
    for (int64_t n = 0; n < x.n; n++) normalise_image(call, n);
    return OK;
}

static void sum_images(const struct call *call, int line, const struct tensor *to)
{
    struct shape x = call->x[0].shape;
    for (int64_t c = 0; to->data && c < x.c; c++) {
        double sum = 0;
        for (int64_t n = 0; n < x.n; n++) sum += lines_of(call, n)[line * x.c + c];
        tensor_set(to, c, sum);
    }
}

static enum status grn_backward(const struct call *call)
{
    struct shape x = call->x[0].shape;
#pragma omp parallel for schedule(static) if (shape_count(x) > PARALLEL)
    for (int64_t n = 0; n < x.n; n++) backward_image(call, n);
    sum_images(call, PRODUCTS, &call->d_params[0]);
    sum_images(call, SUMS, &call->d_params[1]);
    return OK;
}

const struct op_code grn_cpu = {
    .workspace = grn_workspace,
    .forward = grn_normalise,
    .backward = grn_backward,
    .recompute = grn_normalise,
};
