/* conv_gemm_cpu.c: explicit matrix products (im2col) of a whole batch or of single images, with which other
 * algorithms are compared. A row of `columns` has what an output pixel reads: r, s, c of x, zeros outside the
 * image.
 *
 *   y = columns w^T        d_columns = d_y w        d_w = d_y^T columns
 *
 * with w as k, (r, s, c); im2col computes columns from x, and col2im adds up d_columns, which are fp32, to
 * d_x. */
#include "kernels/conv/conv.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/linear/linear.h"
#include "kernels/support/product.h"

struct gemm_plan {
    int64_t images;                      /* at once */
    struct conv_geometry geometry;
    struct shape x, y;                   /* of the batch */
    struct linear_settings linear;
    struct kernel_plan *product;
};

/* A call of the product on some of the images, and its offsets in the workspace. */
struct gemm_part {
    struct call call;
    struct tensor x, params[2], d_params[2];
    size_t workspace;                    /* of the product's own workspace */
};

static int64_t taps(const struct gemm_plan *gemm)
{
    return gemm->geometry.kernel[0] * gemm->geometry.kernel[1];
}

static char *place(const struct call *call, size_t bytes, size_t *offset)
{
    char *at = call->workspace ? (char *)call->workspace + *offset : NULL;
    *offset += onednn_align(bytes);
    return at;
}

/* Columns, the weights or their gradient as k, (r, s, c), the bias's gradient, the product's workspace. */
static void part_make(const struct gemm_plan *gemm, const struct call *call, int64_t image,
                      struct gemm_part *part)
{
    const struct shape *y = &gemm->y;
    int64_t rows = gemm->images * y->h * y->w, depth = taps(gemm) * gemm->x.c;
    enum dtype dtype = call->x[0].dtype, columns = call->phase == PHASE_BACKWARD_DATA ? F32 : dtype;
    struct shape weight = {.rank = 2, .dim = {y->c, depth, 1, 1}};
    bool weights = call->phase == PHASE_BACKWARD_PARAMS;
    size_t offset = 0;
    part->x = (struct tensor){.dtype = columns, .shape = shape_nhwc(rows, 1, 1, depth)};
    part->x.data = place(call, tensor_bytes(&part->x), &offset);
    part->params[0] = (struct tensor){.dtype = call->params[0].dtype, .shape = weight};
    part->d_params[0] = (struct tensor){.dtype = F32, .shape = weight};
    struct tensor *given = weights ? part->d_params : part->params;
    given[0].data = place(call, tensor_bytes(&given[0]), &offset);
    if (call->param_count > 1) {
        part->params[1] = call->params[1];
        part->d_params[1] = (struct tensor){.dtype = F32, .shape = shape_vector(y->c)};
        part->d_params[1].data = place(call, tensor_bytes(&part->d_params[1]), &offset);
    }
    struct tensor out = {.dtype = dtype, .shape = shape_nhwc(rows, 1, 1, y->c)};
    char *base = call->phase == PHASE_FORWARD ? call->y.data : call->d_y.data;
    if (base) out.data = base + (size_t)(image * y->h * y->w * y->c) * dtype_bytes(dtype);
    part->workspace = offset;
    part->call = *call;
    part->call.op = &linear_op;
    part->call.variant = NULL;
    part->call.settings = &gemm->linear;
    part->call.kernel_plan = gemm->product;
    part->call.x = part->call.d_x = &part->x;
    part->call.y = part->call.d_y = out;
    part->call.params = part->params;
    part->call.d_params = part->d_params;
    part->call.workspace = call->workspace ? (char *)call->workspace + offset : NULL;
}

/* The index in the batch of what output pixel `row` reads at a tap; -1: it is outside the image. */
static int64_t pixel_at(const struct gemm_plan *gemm, int64_t row, int64_t tap)
{
    const struct conv_geometry *g = &gemm->geometry;
    int64_t q = row % gemm->y.w, p = row / gemm->y.w % gemm->y.h, n = row / gemm->y.w / gemm->y.h;
    int64_t h = p * g->stride[0] - g->pad[0] + tap / g->kernel[1] * g->dilation[0];
    int64_t w = q * g->stride[1] - g->pad[1] + tap % g->kernel[1] * g->dilation[1];
    if (h < 0 || h >= gemm->x.h || w < 0 || w >= gemm->x.w) return -1;
    return (n * gemm->x.h + h) * gemm->x.w + w;
}

static void im2col(const struct gemm_plan *gemm, const char *x, int64_t image, const struct tensor *columns)
{
    size_t bytes = (size_t)gemm->x.c * dtype_bytes(columns->dtype);
    int64_t first = image * gemm->y.h * gemm->y.w, count = taps(gemm);
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < columns->shape.n; row++)
        for (int64_t tap = 0; tap < count; tap++) {
            char *to = (char *)columns->data + (size_t)(row * count + tap) * bytes;
            int64_t pixel = pixel_at(gemm, first + row, tap);
            if (pixel < 0) memset(to, 0, bytes);
            else memcpy(to, x + (size_t)pixel * bytes, bytes);
        }
}

/* The output position that reads input position `in` at a tap; -1: none. */
static int64_t output_at(const struct gemm_plan *gemm, int axis, int64_t in, int64_t tap)
{
    const struct conv_geometry *g = &gemm->geometry;
    int64_t steps = in + g->pad[axis] - tap * g->dilation[axis], outputs = axis ? gemm->y.w : gemm->y.h;
    if (steps < 0 || steps % g->stride[axis] != 0) return -1;
    return steps / g->stride[axis] < outputs ? steps / g->stride[axis] : -1;
}

/* One pixel's channels. */
static void col2im_pixel(const struct gemm_plan *gemm, const struct tensor *columns, int64_t pixel,
                         float *sums)
{
    int64_t w = pixel % gemm->x.w, h = pixel / gemm->x.w % gemm->x.h, n = pixel / gemm->x.w / gemm->x.h;
    int64_t channels = gemm->x.c, count = taps(gemm), across = gemm->geometry.kernel[1];
    memset(sums, 0, (size_t)channels * sizeof *sums);
    for (int64_t tap = 0; tap < count; tap++) {
        int64_t p = output_at(gemm, 0, h, tap / across), q = output_at(gemm, 1, w, tap % across);
        if (p < 0 || q < 0) continue;
        int64_t at = (((n * gemm->y.h + p) * gemm->y.w + q) * count + tap) * channels;
        const float *run = (const float *)columns->data + at;
        for (int64_t c = 0; c < channels; c++) sums[c] += run[c];
    }
}

static void col2im(const struct gemm_plan *gemm, const struct tensor *columns, int64_t image,
                   const struct tensor *d_x)
{
    int64_t pixels = gemm->images * gemm->x.h * gemm->x.w, channels = gemm->x.c;
    size_t bytes = (size_t)channels * dtype_bytes(d_x->dtype);
    char *first = (char *)d_x->data + (size_t)(image * gemm->x.h * gemm->x.w) * bytes;
#pragma omp parallel
    {
        float *sums = memory_new((size_t)channels, sizeof *sums);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < pixels; i++) {
            col2im_pixel(gemm, columns, i, sums);
            dtype_convert(d_x->dtype, first + (size_t)i * bytes, F32, sums, (size_t)channels);
        }
        free(sums);
    }
}

/* Weights of k, c, r, s to k, (r, s, c). */
static void weights_arrange(const struct gemm_plan *gemm, const struct tensor *from, const struct tensor *to)
{
    int64_t count = taps(gemm), channels = gemm->x.c;
    size_t bytes = dtype_bytes(to->dtype);
    const char *source = from->data;
    char *target = to->data;
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < gemm->y.c; k++)
        for (int64_t tap = 0; tap < count; tap++)
            for (int64_t c = 0; c < channels; c++)
                memcpy(target + (size_t)((k * count + tap) * channels + c) * bytes,
                       source + (size_t)((k * channels + c) * count + tap) * bytes, bytes);
}

/* Stores the first part's gradient as k, c, r, s; adds that of later parts. */
static void gradients_add(const struct gemm_plan *gemm, const struct gemm_part *part, const struct call *call,
                          bool first)
{
    int64_t count = taps(gemm), channels = gemm->x.c;
    const float *from = part->d_params[0].data;
    float *to = call->d_params[0].data;
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < gemm->y.c; k++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t tap = 0; tap < count; tap++) {
                float *sum = &to[(k * channels + c) * count + tap];
                *sum = (first ? 0 : *sum) + from[(k * count + tap) * channels + c];
            }
    if (call->param_count < 2) return;
    const float *bias = part->d_params[1].data;
    float *sums = call->d_params[1].data;
    for (int64_t k = 0; k < gemm->y.c; k++) sums[k] = (first ? 0 : sums[k]) + bias[k];
}

static bool gemm_supports(const struct call *call)
{
    return call->variant && dtype_is_float(call->x[0].dtype) &&
           conv_geometry(call->settings, call->x[0].shape.c).groups == 1;
}

static bool gemm_make(const struct call *call, struct kernel_plan *plan)
{
    struct gemm_part part;
    struct gemm_plan *gemm = plan->state = memory_new(1, sizeof *gemm);
    *gemm = (struct gemm_plan){.geometry = conv_geometry(call->settings, call->x[0].shape.c),
                               .images = plan->algorithm == &conv_gemm ? call->x[0].shape.n : 1,
                               .x = call->x[0].shape};
    gemm->y = call->y.shape.rank > 0 ? call->y.shape : call->d_y.shape;
    gemm->linear.units = gemm->y.c;
    part_make(gemm, call, 0, &part);
    if (kernel_plan_make(&linear_cpu, &part.call, &gemm->product) != OK) return false;
    plan->workspace = part.workspace + gemm->product->workspace;
    return true;
}

static void gemm_release(struct kernel_plan *plan)
{
    kernel_plan_free(((struct gemm_plan *)plan->state)->product);
    free(plan->state);
}

static enum status gemm_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct gemm_plan *gemm = plan->state;
    struct gemm_part part;
    part_make(gemm, call, 0, &part);
    if (call->phase != PHASE_BACKWARD_PARAMS) weights_arrange(gemm, &call->params[0], &part.params[0]);
    for (int64_t image = 0; image < gemm->x.n; image += gemm->images) {
        part_make(gemm, call, image, &part);
        if (call->phase != PHASE_BACKWARD_DATA) im2col(gemm, call->x[0].data, image, &part.x);
        TRY(kernel_plan_run(&part.call));
        if (call->phase == PHASE_BACKWARD_DATA) col2im(gemm, &part.x, image, &call->d_x[0]);
        if (call->phase == PHASE_BACKWARD_PARAMS) gradients_add(gemm, &part, call, image == 0);
    }
    return OK;
}

const struct algorithm conv_gemm = {
    .name = "gemm",
    .supports = gemm_supports,
    .make = gemm_make,
    .release = gemm_release,
    .run = gemm_run,
};

const struct algorithm conv_gemm_per_image = {
    .name = "gemm-per-image",
    .supports = gemm_supports,
    .make = gemm_make,
    .release = gemm_release,
    .run = gemm_run,
};
