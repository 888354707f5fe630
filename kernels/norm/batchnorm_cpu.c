/* batchnorm_cpu.c: batchnorm in two sweeps over memory each way, on threads.
 *
 * Memory is a sequence of lines of `width` elements, each a whole number of pixels, so that the
 * inner loops are long even with few channels; per-channel values (mean, scale, ...) are repeated for
 * every position of a line. Lines are cut into chunks that fit the second-level
 * cache. Sums are fp32 within a chunk; chunks are combined in double, in order, so that the
 * result does not depend on the number of threads.
 *
 * Each chunk's variance takes two passes (Chan, Golub, LeVeque 1983: the corrected two-pass
 * algorithm), the second out of the cache; chunks are combined by their pairwise formula. */
#include "kernels/norm/batchnorm.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/elementwise/activation.h"

#define LINE 256           /* approximate minimum length of lines */
#define CHUNK 16384        /* approximate number of elements */
#define CHUNK_LINES 32     /* minimum, whatever their length */
#define TILE 64            /* channels combined at a time */

struct layout {
    int64_t count, channels, width;
    int64_t chunk, chunks;
};

static struct layout layout_open(struct shape x)
{
    struct layout l = {.count = shape_count(x), .channels = x.c};
    l.width = l.channels * (l.channels < LINE ? LINE / l.channels : 1);
    int64_t lines = CHUNK / l.width > CHUNK_LINES ? CHUNK / l.width : CHUNK_LINES;
    l.chunk = lines * l.width;
    l.chunks = pieces(l.count, l.chunk);
    return l;
}

/* The length of the block that begins at element i: whole lines, or a part of one. */
static int64_t block_length(const struct layout *l, int64_t i, int64_t end)
{
    int64_t length = l->width <= BLOCK ? BLOCK / l->width * l->width
                                       : min_count(BLOCK, l->width - i % l->width);
    return min_count(length, end - i);
}

/* The value of each channel, for every position of a line. */
static void batchnorm_cpu_spread(const struct layout *l, float *line)
{
    for (int64_t i = l->channels; i < l->width; i++) line[i] = line[i - l->channels];
}

/* The sum over a line's positions of each channel. */
static void batchnorm_cpu_gather(const struct layout *l, float *line)
{
    for (int64_t k = 0; k < l->channels; k++) {
        double sum = 0;
        for (int64_t i = k; i < l->width; i += l->channels) sum += line[i];
        line[k] = (float)sum;
    }
}

/* The factors by which a line is normalised:
 *   z = (x - mean) * scale + bias
 *   d_x = scale * dz + tilt * (x - mean) + shift. */
struct factors {
    float *mean, *scale, *bias, *tilt, *shift;
};
#define FACTORS 5

/* Some lines, or a part of one: `count` elements, the factors of the first one's position, the activation. */
struct extent {
    int64_t count, width;
    struct factors f;
    enum activation activation;
    float slope;
};

INLINE float normalise(const struct factors *f, float x, int64_t j)
{
    return (x - f->mean[j]) * f->scale[j] + f->bias[j];
}

static EVERY_MACHINE(void, add_up, (const float *x, int64_t count, int64_t width, float *sum),
                     (x, count, width, sum))
{
    for (int64_t first = 0; first < count; first += width) {
        int64_t length = min_count(width, count - first);
#pragma omp simd
        for (int64_t j = 0; j < length; j++) sum[j] += x[first + j];
    }
}

static EVERY_MACHINE(void, add_up_deviations, (const float *x, int64_t count, int64_t width,
                     const float *mean, float *sum, float *squares), (x, count, width, mean, sum, squares))
{
    for (int64_t first = 0; first < count; first += width) {
        int64_t length = min_count(width, count - first);
#pragma omp simd
        for (int64_t j = 0; j < length; j++) {
            float deviation = x[first + j] - mean[j];
            sum[j] += deviation;
            squares[j] += deviation * deviation;
        }
    }
}

static EVERY_MACHINE(void, add_up_products, (const float *x, const float *dz, const struct extent *e,
                     float *sum, float *products), (x, dz, e, sum, products))
{
    const float *mean = e->f.mean;
    for (int64_t first = 0; first < e->count; first += e->width) {
        int64_t length = min_count(e->width, e->count - first);
#pragma omp simd
        for (int64_t j = 0; j < length; j++) {
            sum[j] += dz[first + j];
            products[j] += dz[first + j] * (x[first + j] - mean[j]);
        }
    }
}

INLINE void normalise_lines(const float *x, const float *residual, float *y, const struct extent *e,
                            enum activation activation)
{
    const struct factors *f = &e->f;
    float slope = e->slope;
    for (int64_t first = 0; first < e->count; first += e->width) {
        int64_t length = min_count(e->width, e->count - first);
        if (residual) {
#pragma omp simd
            for (int64_t j = 0; j < length; j++)
                y[first + j] =
                    activate_fp32(activation, normalise(f, x[first + j], j) + residual[first + j], slope);
        } else {
#pragma omp simd
            for (int64_t j = 0; j < length; j++)
                y[first + j] = activate_fp32(activation, normalise(f, x[first + j], j), slope);
        }
    }
}

/* The loops are specialised for each activation. */
static EVERY_MACHINE(void, normalise_block, (const float *x, const float *residual, float *y,
                     const struct extent *e), (x, residual, y, e))
{
    switch (e->activation) {
#define ACTIVATION(NAME, ...)                                                                             \
    case ACTIVATION_##NAME: normalise_lines(x, residual, y, e, ACTIVATION_##NAME); return;
#include "kernels/activations.def"
#undef ACTIVATION
    case ACTIVATION_NONE: normalise_lines(x, residual, y, e, ACTIVATION_NONE); return;
    }
}

/* dz by the side of z, which follows from x or, if present, from y. */
INLINE void d_z_lines(const float *x, const float *y, const float *d_y, float *dz, const struct extent *e,
                      enum activation activation)
{
    const struct factors *f = &e->f;
    float slope = e->slope;
    for (int64_t first = 0; first < e->count; first += e->width) {
        int64_t length = min_count(e->width, e->count - first);
        if (y) {
#pragma omp simd
            for (int64_t j = 0; j < length; j++)
                dz[first + j] = activation_gradient_fp32(activation, y[first + j], d_y[first + j], slope);
        } else {
#pragma omp simd
            for (int64_t j = 0; j < length; j++)
                dz[first + j] = activation_gradient_fp32(activation, normalise(f, x[first + j], j),
                                                         d_y[first + j], slope);
        }
    }
}

static EVERY_MACHINE(void, d_z_block, (const float *x, const float *y, const float *d_y, float *dz,
                     const struct extent *e), (x, y, d_y, dz, e))
{
    switch (e->activation) {
#define ACTIVATION(NAME, ...)                                                                             \
    case ACTIVATION_##NAME: d_z_lines(x, y, d_y, dz, e, ACTIVATION_##NAME); return;
#include "kernels/activations.def"
#undef ACTIVATION
    case ACTIVATION_NONE: return;
    }
}

static EVERY_MACHINE(void, d_x_block, (const float *x, const float *dz, float *d_x, const struct extent *e),
                     (x, dz, d_x, e))
{
    const struct factors *f = &e->f;
    for (int64_t first = 0; first < e->count; first += e->width) {
        int64_t length = min_count(e->width, e->count - first);
#pragma omp simd
        for (int64_t j = 0; j < length; j++)
            d_x[first + j] =
                f->scale[j] * dz[first + j] + (f->tilt[j] * (x[first + j] - f->mean[j]) + f->shift[j]);
    }
}

/* Elements i .. i + length - 1 of the tensor. */
static struct extent extent_at(const struct call *call, const struct layout *l, const struct factors *f,
                               int64_t i, int64_t length)
{
    const struct batchnorm *s = call->settings;
    int64_t column = i % l->width;
    return (struct extent){
        .count = length,
        .width = l->width,
        .f = {f->mean + column, f->scale + column, f->bias + column, f->tilt + column, f->shift + column},
        .activation = s->activation,
        .slope = (float)s->slope,
    };
}

/* Computes the factors in `memory`, FACTORS lines, from the means and inverse deviations of the channels;
 * combine_gradients sets tilt and shift. */
static struct factors factors_open(const struct call *call, const struct layout *l, float *memory,
                                   const struct tensor *mean, const struct tensor *spread_of, double eps)
{
    const struct batchnorm *s = call->settings;
    int64_t width = l->width;
    struct factors f = {memory, memory + width, memory + 2 * width, memory + 3 * width, memory + 4 * width};
    for (int64_t k = 0; k < l->channels; k++) {
        double invstd = tensor_get(spread_of, k);
        if (eps >= 0) invstd = 1 / sqrt(invstd + eps);
        f.mean[k] = (float)tensor_get(mean, k);
        f.scale[k] = (float)(invstd * (s->affine ? tensor_get(&call->params[0], k) : 1));
        f.bias[k] = s->affine ? (float)tensor_get(&call->params[1], k) : 0;
    }
    batchnorm_cpu_spread(l, f.mean);
    batchnorm_cpu_spread(l, f.scale);
    batchnorm_cpu_spread(l, f.bias);
    return f;
}

static struct factors factors_of_batch(const struct call *call, const struct layout *l, float *memory)
{
    return factors_open(call, l, memory, &call->saved[SAVED_MEAN], &call->saved[SAVED_INVSTD], -1);
}

static struct factors factors_of_running(const struct call *call, const struct layout *l, float *memory)
{
    const struct batchnorm *s = call->settings;
    struct batchnorm_statistics at = batchnorm_statistics(s);
    return factors_open(call, l, memory, &call->params[at.mean], &call->params[at.variance], s->eps);
}

/* Mean and sum of squared deviations from it of every channel in a chunk, to memory[0 .. channels)
 * and memory[2 * width .. ); three lines of memory. */
static void measure_chunk(const struct call *call, const struct layout *l, int64_t begin, float *memory)
{
    ALIGNED float buffer[BLOCK];
    float *mean = memory, *sum = memory + l->width, *squares = memory + 2 * l->width;
    int64_t end = min_count(begin + l->chunk, l->count);
    float n = (float)((end - begin) / l->channels);
    memset(memory, 0, (size_t)(3 * l->width) * sizeof *memory);
    for (int64_t i = begin, length; i < end; i += length) {
        length = block_length(l, i, end);
        add_up(block_load(&call->x[0], i, length, buffer), length, l->width, mean + i % l->width);
    }
    batchnorm_cpu_gather(l, mean);
    for (int64_t k = 0; k < l->channels; k++) mean[k] /= n;
    batchnorm_cpu_spread(l, mean);
    for (int64_t i = begin, length; i < end; i += length) {
        length = block_length(l, i, end);
        int64_t column = i % l->width;
        add_up_deviations(block_load(&call->x[0], i, length, buffer), length, l->width, mean + column,
                          sum + column, squares + column);
    }
    batchnorm_cpu_gather(l, sum);
    batchnorm_cpu_gather(l, squares);
    for (int64_t k = 0; k < l->channels; k++) {
        mean[k] += sum[k] / n;
        squares[k] -= sum[k] * sum[k] / n;
    }
}

/* Combines the chunks' results for channels first .. end - 1 and saves the statistics. */
static void combine_statistics(const struct call *call, const struct layout *l, const float *memory,
                               int64_t first, int64_t end)
{
    const struct batchnorm *s = call->settings;
    double mean[TILE] = {0}, squares[TILE] = {0};
    double n = 0;
    for (int64_t chunk = 0; chunk < l->chunks; chunk++) {
        const float *part = memory + chunk * 3 * l->width;
        double m = (double)(min_count(l->chunk, l->count - chunk * l->chunk) / l->channels);
        double share = m / (n + m), cross = n * share;
        for (int64_t k = first; k < end; k++) {
            double delta = part[k] - mean[k - first];
            mean[k - first] += delta * share;
            squares[k - first] += part[2 * l->width + k] + delta * delta * cross;
        }
        n += m;
    }
    for (int64_t k = first; k < end; k++) {
        double square = squares[k - first] < 0 ? 0 : squares[k - first];
        tensor_set(&call->saved[SAVED_MEAN], k, mean[k - first]);
        if (call->saved[SAVED_INVSTD].data)
            tensor_set(&call->saved[SAVED_INVSTD], k, 1 / sqrt(square / n + s->eps));
        tensor_set(&call->saved[SAVED_VARIANCE], k, n > 1 ? square / (n - 1) : 0);
    }
}

static void batchnorm_cpu_measure(const struct call *call, const struct layout *l, float *memory)
{
#pragma omp parallel for schedule(static) if (l->count > PARALLEL)
    for (int64_t chunk = 0; chunk < l->chunks; chunk++)
        measure_chunk(call, l, chunk * l->chunk, memory + chunk * 3 * l->width);
#pragma omp parallel for schedule(static) if (l->chunks * l->channels > PARALLEL)
    for (int64_t first = 0; first < l->channels; first += TILE)
        combine_statistics(call, l, memory, first, min_count(first + TILE, l->channels));
}

static void normalise_chunk(const struct call *call, const struct layout *l, int64_t begin,
                            const struct factors *f)
{
    bool residual = ((const struct batchnorm *)call->settings)->residual;
    ALIGNED float in[BLOCK], added[BLOCK], out[BLOCK];
    int64_t end = min_count(begin + l->chunk, l->count);
    for (int64_t i = begin, length; i < end; i += length) {
        length = block_length(l, i, end);
        struct extent e = extent_at(call, l, f, i, length);
        float *y = block_open(&call->y, i, out);
        normalise_block(block_load(&call->x[0], i, length, in),
                        residual ? block_load(&call->x[1], i, length, added) : NULL, y, &e);
        block_store(&call->y, i, length, y);
    }
}

static enum status batchnorm_cpu_forward(const struct call *call)
{
    struct layout l = layout_open(call->x[0].shape);
    float *memory = call->workspace;
    if (call->training && call->ranks == 0) batchnorm_cpu_measure(call, &l, memory + FACTORS * l.width);
    struct factors f =
        call->training ? factors_of_batch(call, &l, memory) : factors_of_running(call, &l, memory);
#pragma omp parallel for schedule(static) if (l.count > PARALLEL)
    for (int64_t chunk = 0; chunk < l.chunks; chunk++) normalise_chunk(call, &l, chunk * l.chunk, &f);
    return OK;
}

/* Recomputes y with the operations of forward and the statistics that it saved. */
static enum status batchnorm_cpu_recompute(const struct call *call)
{
    struct layout l = layout_open(call->x[0].shape);
    struct factors f = factors_of_batch(call, &l, call->workspace);
#pragma omp parallel for schedule(static) if (l.count > PARALLEL)
    for (int64_t chunk = 0; chunk < l.chunks; chunk++) normalise_chunk(call, &l, chunk * l.chunk, &f);
    return OK;
}

/* A block in backward. dz is d_y itself if there is no activation. */
struct window {
    ALIGNED float x_buffer[BLOCK], y_buffer[BLOCK], d_y_buffer[BLOCK], dz_buffer[BLOCK];
    const float *x, *dz;
};

static bool residual_wanted(const struct call *call)
{
    const struct batchnorm *s = call->settings;
    return s->residual && call->d_x[1].data;
}

static void window_open(struct window *w, const struct call *call, int64_t i, const struct extent *e)
{
    const struct batchnorm *s = call->settings;
    bool by_y = s->residual && s->activation != ACTIVATION_NONE;
    w->x = block_load(&call->x[0], i, e->count, w->x_buffer);
    const float *d_y = block_load(&call->d_y, i, e->count, w->d_y_buffer);
    w->dz = s->activation == ACTIVATION_NONE ? d_y : w->dz_buffer;
    d_z_block(w->x, by_y ? block_load(&call->y, i, e->count, w->y_buffer) : NULL, d_y, w->dz_buffer, e);
}

/* Opens the window in the second sweep: the residual's gradient, if wanted, is dz as the first one wrote it,
 * which is exact, unless leaky_relu has scaled it. */
static void window_reopen(struct window *w, const struct call *call, int64_t i, const struct extent *e)
{
    const struct batchnorm *s = call->settings;
    if (residual_wanted(call) && s->activation != ACTIVATION_LEAKY_RELU) {
        w->x = block_load(&call->x[0], i, e->count, w->x_buffer);
        w->dz = block_load(&call->d_x[1], i, e->count, w->dz_buffer);
    } else {
        window_open(w, call, i, e);
    }
}

/* Sums of dz and dz * (x - mean) of every channel of a chunk, to two lines of memory; writes the
 * residual's gradient. */
static void reduce_chunk(const struct call *call, const struct layout *l, int64_t begin,
                         const struct factors *f, float *memory)
{
    struct window w;
    float *sum = memory, *products = memory + l->width;
    int64_t end = min_count(begin + l->chunk, l->count);
    memset(memory, 0, (size_t)(2 * l->width) * sizeof *memory);
    for (int64_t i = begin, length; i < end; i += length) {
        length = block_length(l, i, end);
        int64_t column = i % l->width;
        struct extent e = extent_at(call, l, f, i, length);
        window_open(&w, call, i, &e);
        if (residual_wanted(call))
            dtype_convert(call->d_x[1].dtype, block_address(&call->d_x[1], i), F32, w.dz, (size_t)length);
        add_up_products(w.x, w.dz, &e, sum + column, products + column);
    }
    batchnorm_cpu_gather(l, sum);
    batchnorm_cpu_gather(l, products);
}

/* Parameter gradients, and d_x's tilt and shift, for channels first .. end - 1. */
static void combine_gradients(const struct call *call, const struct layout *l, const struct factors *f,
                              const float *memory, int64_t first, int64_t end)
{
    const struct batchnorm *s = call->settings;
    const struct tensor *shared = call_operand(call, OPERAND_RANK_SUMS);
    double sum[TILE] = {0}, products[TILE] = {0};
    double n = (double)(l->count / l->channels);
    for (int64_t chunk = 0; chunk < l->chunks; chunk++) {
        const float *part = memory + chunk * 2 * l->width;
        for (int64_t k = first; k < end; k++) {
            sum[k - first] += part[k];
            products[k - first] += part[l->width + k];
        }
    }
    for (int64_t k = first; k < end; k++) {
        double invstd = tensor_get(&call->saved[SAVED_INVSTD], k);
        if (s->affine && call->d_params[0].data)
            tensor_set(&call->d_params[0], k, products[k - first] * invstd);
        if (s->affine && call->d_params[1].data) tensor_set(&call->d_params[1], k, sum[k - first]);
        if (shared) tensor_set(shared, k, sum[k - first]);
        if (shared) tensor_set(shared, l->channels + k, products[k - first] * invstd);
        f->tilt[k] = (float)(-f->scale[k] * products[k - first] * invstd * invstd / n);
        f->shift[k] = (float)(-f->scale[k] * sum[k - first] / n);
    }
}

/* d_x's tilt and shift from the sums of all ranks. */
static void take_sums(const struct call *call, const struct layout *l, const struct factors *f)
{
    const struct tensor *shared = call_operand(call, OPERAND_RANK_SUMS);
    double n = (double)call->ranks * (double)(l->count / l->channels);
    for (int64_t k = 0; k < l->channels; k++) {
        double invstd = tensor_get(&call->saved[SAVED_INVSTD], k);
        f->tilt[k] = (float)(-f->scale[k] * tensor_get(shared, l->channels + k) * invstd / n);
        f->shift[k] = (float)(-f->scale[k] * tensor_get(shared, k) / n);
    }
}

/* The sums of this rank alone. */
static void make_sums(const struct call *call, const struct layout *l, const struct factors *f, float *parts)
{
#pragma omp parallel for schedule(static) if (l->count > PARALLEL)
    for (int64_t chunk = 0; chunk < l->chunks; chunk++)
        reduce_chunk(call, l, chunk * l->chunk, f, parts + chunk * 2 * l->width);
#pragma omp parallel for schedule(static) if (l->chunks * l->channels > PARALLEL)
    for (int64_t first = 0; first < l->channels; first += TILE)
        combine_gradients(call, l, f, parts, first, min_count(first + TILE, l->channels));
}

static void spread_gradient_chunk(const struct call *call, const struct layout *l, int64_t begin,
                                  const struct factors *f)
{
    struct window w;
    ALIGNED float out[BLOCK];
    int64_t end = min_count(begin + l->chunk, l->count);
    for (int64_t i = begin, length; i < end; i += length) {
        length = block_length(l, i, end);
        struct extent e = extent_at(call, l, f, i, length);
        window_reopen(&w, call, i, &e);
        float *d_x = block_open(&call->d_x[0], i, out);
        d_x_block(w.x, w.dz, d_x, &e);
        block_store(&call->d_x[0], i, length, d_x);
    }
}

static enum status pass_gradients(const struct call *call)
{
    struct layout l = layout_open(call->x[0].shape);
    float *memory = call->workspace;
    struct factors f = factors_of_batch(call, &l, memory);
    if (call->ranks > 0) take_sums(call, &l, &f);
    else make_sums(call, &l, &f, memory + FACTORS * l.width);
    if (!call->d_x[0].data) return OK;
    batchnorm_cpu_spread(&l, f.tilt);
    batchnorm_cpu_spread(&l, f.shift);
#pragma omp parallel for schedule(static) if (l.count > PARALLEL)
    for (int64_t chunk = 0; chunk < l.chunks; chunk++)
        spread_gradient_chunk(call, &l, chunk * l.chunk, &f);
    return OK;
}

static enum status batchnorm_cpu_backward(const struct call *call)
{
    TRY(pass_gradients(call));
    if (!call_operand(call, OPERAND_Y_RECOMPUTED)) return OK;
    struct call recompute = call_that_recomputes(call);
    return batchnorm_cpu_recompute(&recompute);
}

static size_t batchnorm_cpu_workspace(const struct call *call)
{
    struct layout l = layout_open(call->x[0].shape);
    int64_t lines = 0;
    switch (call->phase) {
    case PHASE_FORWARD: lines = FACTORS + (call->training ? 3 * l.chunks : 0); break;
    case PHASE_BACKWARD: lines = FACTORS + 2 * l.chunks; break;
    case PHASE_BACKWARD_DATA:
    case PHASE_BACKWARD_PARAMS:
    case PHASE_UPDATE: break;
    case PHASE_RECOMPUTE: lines = FACTORS; break;
    case PHASE_COUNT: break;
    }
    return (size_t)(lines * l.width) * sizeof(float);
}

static size_t batch_moments_workspace(const struct call *call)
{
    struct call measured = *call;
    measured.training = true;
    return batchnorm_cpu_workspace(&measured);
}

static enum status batch_moments_cpu_forward(const struct call *call)
{
    struct batchnorm settings = {0};
    struct tensor saved[SAVED_COUNT];
    struct call measured = batchnorm_moments_call(call, &settings, saved);
    struct layout l = layout_open(call->x[0].shape);
    batchnorm_cpu_measure(&measured, &l, call->workspace);
    return OK;
}

const struct op_code batch_moments_cpu = {
    .workspace = batch_moments_workspace,
    .forward = batch_moments_cpu_forward,
};

const struct op_code batchnorm_cpu = {
    .workspace = batchnorm_cpu_workspace,
    .forward = batchnorm_cpu_forward,
    .backward = batchnorm_cpu_backward,
    .update = batchnorm_update,
    .recompute = batchnorm_cpu_recompute,
};
