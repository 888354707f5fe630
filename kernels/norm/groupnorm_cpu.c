/* groupnorm_cpu.c: image by image in two sweeps over its pixels, on threads: one adds up sums by channel, the
 * other uses them. Forward's sums are of deviations from the image's first pixel, so that little precision is
 * lost when squares are subtracted (Chan, Golub, LeVeque 1983). */
#include <math.h>
#include <string.h>

#include "kernels/norm/groupnorm.h"
#include "kernels/elementwise/activation.h"
#include "kernels/support/pixels_cpu.h"

/* The beginning of the workspace; lines for pixels_run follow. All have one number a channel. */
struct room {
    double *totals;            /* [2]: gradients of weight and bias, so far */
    float *sums;               /* [2]: of an image */
    float *statistics;         /* [2]: of an image, where forward saves none */
};
#define ROOM_BYTES (2 * sizeof(double) + 4 * sizeof(float))

static struct room room_of(const struct call *call)
{
    int64_t channels = call->x[0].shape.c;
    double *totals = call->workspace;
    float *sums = (float *)(totals + 2 * channels);
    return (struct room){totals, sums, sums + 2 * channels};
}

/* The call for one image alone, whose workspace are the lines; saved tensors: statistics, then sums. */
#define IMAGE_SUMS GROUPNORM_SAVED
struct image_call {
    struct call call;
    struct tensor x[2], d_x[2], saved[GROUPNORM_SAVED + 2];
};

static void part_of(struct tensor *tensor, int64_t elements, int64_t n)
{
    if (tensor->data) tensor->data = block_address(tensor, n * elements);
    tensor->shape.n = 1;
}

static void image_open(const struct call *call, int64_t n, struct image_call *image)
{
    struct room room = room_of(call);
    int64_t channels = call->x[0].shape.c, elements = shape_count(call->x[0].shape) / call->x[0].shape.n;
    int64_t groups = groupnorm_groups(call->settings, channels);
    *image = (struct image_call){.call = *call};
    for (int i = 0; i < call->x_count; i++) {
        image->x[i] = call->x[i];
        if (call->phase == PHASE_BACKWARD) image->d_x[i] = call->d_x[i];
        part_of(&image->x[i], elements, n);
        part_of(&image->d_x[i], elements, n);
    }
    image->call.x = image->x;
    image->call.d_x = image->d_x;
    part_of(&image->call.y, elements, n);
    part_of(&image->call.d_y, elements, n);
    for (int i = 0; i < image->call.operand_count; i++)
        part_of(&image->call.operands[i].tensor, elements, n);
    for (int i = 0; i < GROUPNORM_SAVED; i++) {
        image->saved[i] = (struct tensor){room.statistics + i * channels, F32, shape_vector(groups)};
        if (call->saved_count > 0) image->saved[i].data = (float *)call->saved[i].data + n * groups;
        image->saved[IMAGE_SUMS + i] = (struct tensor){room.sums + i * channels, F32, shape_vector(channels)};
    }
    image->call.saved = image->saved;
    image->call.workspace = (char *)call->workspace + channels * (int64_t)ROOM_BYTES;
}

/* Factors of each channel, for z = (x - mean) * scale + bias, and for d_x = invstd * (weight * d_y +
 * (tilt * (x - mean) + shift)), which is exactly 0 where a group is one number. */
struct factors {
    float *mean, *scale, *bias, *invstd, *weight, *tilt, *shift;
};
#define FACTORS 7

static struct factors factors_at(float *lines, int64_t channels)
{
    return (struct factors){lines, lines + channels, lines + 2 * channels, lines + 3 * channels,
                            lines + 4 * channels, lines + 5 * channels, lines + 6 * channels};
}

static EVERY_MACHINE(void, add_deviations, (const float *x, const float *pivot, float *sum, float *squares,
                     int64_t count), (x, pivot, sum, squares, count))
{
#pragma omp simd
    for (int64_t c = 0; c < count; c++) {
        float deviation = x[c] - pivot[c];
        sum[c] += deviation;
        squares[c] += deviation * deviation;
    }
}

static EVERY_MACHINE(void, add_products, (const float *x, const float *d_y, const float *mean, float *sum,
                     float *products, int64_t count), (x, d_y, mean, sum, products, count))
{
#pragma omp simd
    for (int64_t c = 0; c < count; c++) {
        sum[c] += d_y[c];
        products[c] += d_y[c] * (x[c] - mean[c]);
    }
}

static EVERY_MACHINE(void, normalise, (const struct factors *f, const float *x, float *y, int64_t count),
                     (f, x, y, count))
{
    const float *mean = f->mean, *scale = f->scale, *bias = f->bias;
#pragma omp simd
    for (int64_t c = 0; c < count; c++) y[c] = (x[c] - mean[c]) * scale[c] + bias[c];
}

static EVERY_MACHINE(void, gradient, (const struct factors *f, const float *x, const float *d_y, float *d_x,
                     int64_t count), (f, x, d_y, d_x, count))
{
    const float *mean = f->mean, *invstd = f->invstd, *weight = f->weight, *tilt = f->tilt, *shift = f->shift;
#pragma omp simd
    for (int64_t c = 0; c < count; c++)
        d_x[c] = invstd[c] * (weight[c] * d_y[c] + (tilt[c] * (x[c] - mean[c]) + shift[c]));
}

static void copy_pivot(const struct call *call, float *pivot)
{
    for (int64_t c = 0; c < call->x[0].shape.c; c++) pivot[c] = (float)tensor_get(&call->x[0], c);
}

/* Few pixels are added up at a time, and then their sums, so that less is rounded. */
#define RUN 64

static void conclude_run(float *run, float *sums, int64_t count)
{
    pixels_add(run, sums, count);
    memset(run, 0, (size_t)count * sizeof *run);
}

static void load_means(const struct call *call, float *mean)
{
    int64_t channels = call->x[0].shape.c, each = channels / groupnorm_groups(call->settings, channels);
    const float *saved = call->saved[GROUPNORM_MEAN].data;
    for (int64_t c = 0; c < channels; c++) mean[c] = saved[c / each];
}

/* Mean, scale and bias of each channel, from the statistics of its group. */
static struct factors load_factors(const struct call *call, float *lines)
{
    int64_t channels = call->x[0].shape.c, each = channels / groupnorm_groups(call->settings, channels);
    struct factors f = factors_at(lines, channels);
    const float *invstd = call->saved[GROUPNORM_INVSTD].data;
    const float *weight = call->param_count ? call->params[0].data : NULL;
    const float *bias = call->param_count ? call->params[1].data : NULL;
    load_means(call, f.mean);
    for (int64_t c = 0; c < channels; c++) {
        f.invstd[c] = invstd[c / each];
        f.weight[c] = weight ? weight[c] : 1;
        f.scale[c] = f.invstd[c] * f.weight[c];
        f.bias[c] = bias ? bias[c] : 0;
    }
    return f;
}

/* z of a pixel, whose x is given, to the line. */
static void z_line(const struct call *call, const struct factors *f, int64_t at, const float *x, float *z,
                   float *buffer)
{
    int64_t channels = call->x[0].shape.c;
    normalise(f, x, z, channels);
    if (call->x_count > 1) pixels_add(block_load(&call->x[1], at, channels, buffer), z, channels);
}

/* The gradient of z of a pixel: d_y, in the buffer if it is not fp32, or the first of two lines. */
static const float *d_z_line(const struct call *call, const struct factors *f, int64_t at, const float *x,
                             float *buffer, float *lines)
{
    int64_t channels = call->x[0].shape.c;
    struct call_activation activation = call_activation(call);
    const float *d_y = block_load(&call->d_y, at, channels, buffer);
    if (activation.kind == ACTIVATION_NONE) return d_y;
    z_line(call, f, at, x, lines, lines + channels);
    activation_gradient_block(activation, lines, d_y, lines, channels);
    return lines;
}

/* The first sweep. Lines begin with the sums; those of a run of pixels are zero behind each run. */
static void sums_piece(const struct call *call, int64_t first, int64_t end, float *lines)
{
    int64_t channels = call->x[0].shape.c;
    float *run = lines + 2 * channels, *buffer = lines + (4 + FACTORS) * channels;
    struct factors f = factors_at(lines + 4 * channels, channels);
    if (call->phase == PHASE_FORWARD) copy_pivot(call, f.mean);
    else load_factors(call, lines + 4 * channels);
    memset(run, 0, (size_t)(2 * channels) * sizeof *run);
    for (int64_t pixel = first; pixel < end; pixel++) {
        int64_t at = pixel * channels;
        const float *x = block_load(&call->x[0], at, channels, buffer);
        if (call->phase == PHASE_FORWARD)
            add_deviations(x, f.mean, run, run + channels, channels);
        else
            add_products(x, d_z_line(call, &f, at, x, buffer + channels, buffer + 2 * channels), f.mean, run,
                         run + channels, channels);
        if ((pixel + 1 - first) % RUN == 0 || pixel + 1 == end) conclude_run(run, lines, 2 * channels);
    }
}

/* Tilt and shift of each channel, from the image's sums of d_y and of d_y * (x - mean). */
static void load_gradient_factors(const struct call *call, const struct factors *f)
{
    int64_t channels = call->x[0].shape.c, each = channels / groupnorm_groups(call->settings, channels);
    const float *sums = call->saved[IMAGE_SUMS].data, *products = call->saved[IMAGE_SUMS + 1].data;
    const float *weight = call->param_count ? call->params[0].data : NULL;
    double count = (double)(call->x[0].shape.h * call->x[0].shape.w * each);
    for (int64_t first = 0; first < channels; first += each) {
        double sum = 0, product = 0, scale = tensor_get(&call->saved[GROUPNORM_INVSTD], first / each);
        for (int64_t c = first; c < first + each; c++) {
            sum += (weight ? weight[c] : 1) * (double)sums[c];
            product += (weight ? weight[c] : 1) * (double)products[c];
        }
        for (int64_t c = first; c < first + each; c++) {
            f->shift[c] = (float)(-sum / count);
            f->tilt[c] = (float)(-scale * scale * product / count);
        }
    }
}

/* The second sweep: y or, in backward, the gradients, and y if it is recomputed. */
static void write_piece(const struct call *call, int64_t first, int64_t end, float *lines)
{
    int64_t channels = call->x[0].shape.c;
    bool back = call->phase == PHASE_BACKWARD, joins = back && call->x_count > 1 && call->d_x[1].data;
    struct factors f = load_factors(call, lines);
    const struct tensor *to = back ? call_operand(call, OPERAND_Y_RECOMPUTED) : &call->y;
    float *buffer = lines + FACTORS * channels, *d_x, *y;
    if (back) load_gradient_factors(call, &f);
    for (int64_t pixel = first; pixel < end; pixel++) {
        int64_t at = pixel * channels;
        const float *x = block_load(&call->x[0], at, channels, buffer), *d_z = NULL;
        if (back) d_z = d_z_line(call, &f, at, x, buffer + channels, buffer + 2 * channels);
        if (to) {
            y = block_open(to, at, buffer + 4 * channels);
            z_line(call, &f, at, x, y, buffer + 3 * channels);
            activation_block(call_activation(call), y, y, channels);
            block_store(to, at, channels, y);
        }
        if (joins)
            dtype_convert(call->d_x[1].dtype, block_address(&call->d_x[1], at), F32, d_z, (size_t)channels);
        if (!back || !call->d_x[0].data) continue;
        d_x = block_open(&call->d_x[0], at, buffer);
        gradient(&f, x, d_z, d_x, channels);
        block_store(&call->d_x[0], at, channels, d_x);
    }
}

/* The statistics of each group, from those of its channels. */
static void conclude(const struct call *call)
{
    const struct groupnorm *s = call->settings;
    int64_t channels = call->x[0].shape.c, each = channels / groupnorm_groups(s, channels);
    double pixels = (double)(call->x[0].shape.h * call->x[0].shape.w);
    for (int64_t first = 0; first < channels; first += each) {
        double mean = 0, squares = 0, count = 0;
        for (int64_t c = first; c < first + each; c++) {
            double sum = tensor_get(&call->saved[IMAGE_SUMS], c), own = sum / pixels;
            double delta = own + tensor_get(&call->x[0], c) - mean, all = count + pixels;
            squares += fmax(tensor_get(&call->saved[IMAGE_SUMS + 1], c) - sum * own, 0);
            squares += delta * delta * count * pixels / all;
            mean += delta * pixels / all;
            count = all;
        }
        tensor_set(&call->saved[GROUPNORM_MEAN], first / each, mean);
        tensor_set(&call->saved[GROUPNORM_INVSTD], first / each, 1 / sqrt(squares / count + s->eps));
    }
}

#define LINES (4 + FACTORS + 4)      /* of a piece of either sweep */

static size_t groupnorm_cpu_workspace(const struct call *call)
{
    struct pixels_work work = {.lines = LINES};
    struct shape shape = call->x[0].shape;
    shape.n = 1;
    return (size_t)shape.c * ROOM_BYTES + pixels_workspace(shape, &work);
}

static void add_to_totals(const struct image_call *image, const struct room *room)
{
    int64_t channels = image->x->shape.c;
    int64_t each = channels / groupnorm_groups(image->call.settings, channels);
    for (int64_t c = 0; c < channels; c++) {
        room->totals[c] += room->sums[channels + c] * tensor_get(&image->saved[GROUPNORM_INVSTD], c / each);
        room->totals[channels + c] += room->sums[c];
    }
}

static void sweep_image(const struct call *call, int64_t n)
{
    struct image_call image;
    struct room room = room_of(call);
    image_open(call, n, &image);
    struct pixels_work sums = {.sums = 2, .lines = LINES, .piece = sums_piece,
                               .totals = {&image.saved[IMAGE_SUMS], &image.saved[IMAGE_SUMS + 1]}};
    struct pixels_work write = {.lines = LINES, .piece = write_piece};
    if (call->phase != PHASE_RECOMPUTE) pixels_run(&image.call, image.x->shape, &sums);
    if (call->phase == PHASE_FORWARD) conclude(&image.call);
    if (call->phase == PHASE_BACKWARD) add_to_totals(&image, &room);
    if (call->phase != PHASE_BACKWARD || image.d_x[0].data || image.d_x[1].data ||
        call_operand(call, OPERAND_Y_RECOMPUTED))
        pixels_run(&image.call, image.x->shape, &write);
}

static enum status groupnorm_cpu_run(const struct call *call)
{
    int64_t channels = call->x[0].shape.c;
    double *totals = room_of(call).totals;
    memset(totals, 0, (size_t)(2 * channels) * sizeof *totals);
    for (int64_t n = 0; n < call->x[0].shape.n; n++) sweep_image(call, n);
    for (int i = 0; call->phase == PHASE_BACKWARD && i < call->param_count; i++)
        for (int64_t c = 0; call->d_params[i].data && c < channels; c++)
            tensor_set(&call->d_params[i], c, totals[i * channels + c]);
    for (int64_t c = 0; call_operand(call, OPERAND_D_X_SUMS) && c < channels; c++)
        tensor_set(call_operand(call, OPERAND_D_X_SUMS), c, 0);
    return OK;
}

const struct op_code groupnorm_cpu = {
    .supports = groupnorm_supports,
    .workspace = groupnorm_cpu_workspace,
    .forward = groupnorm_cpu_run,
    .backward = groupnorm_cpu_run,
    .recompute = groupnorm_cpu_run,
};
