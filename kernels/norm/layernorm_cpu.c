/* layernorm_cpu.c: layernorm pixel by pixel in fp32, on threads. */
#include "kernels/norm/layernorm.h"

#include <math.h>

#include "kernels/support/pixels_cpu.h"

static EVERY_MACHINE(float, sum_of, (const float *x, int64_t count), (x, count))
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += x[i];
    return sum;
}

static EVERY_MACHINE(float, squares_of, (const float *x, float mean, int64_t count), (x, mean, count))
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

struct line {
    const float *weight, *bias;
    float mean, invstd;
    int64_t count;
};

static EVERY_MACHINE(void, normalise_line, (const struct line *l, const float *x, float *y), (l, x, y))
{
    const float *weight = l->weight, *bias = l->bias;
    float mean = l->mean, invstd = l->invstd;
#pragma omp simd
    for (int64_t i = 0; i < l->count; i++) y[i] = (x[i] - mean) * invstd * weight[i] + bias[i];
}

struct line_sums {
    float sum, product;
};

/* Sums of g and g * xhat; adds d_y * xhat and d_y to two lines. */
static EVERY_MACHINE(struct line_sums, add_gradients, (const struct line *l, const float *x,
                     const float *d_y, float *d_weight, float *d_bias), (l, x, d_y, d_weight, d_bias))
{
    const float *weight = l->weight;
    float mean = l->mean, invstd = l->invstd, sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (int64_t i = 0; i < l->count; i++) {
        float xhat = (x[i] - mean) * invstd, g = d_y[i] * weight[i];
        sum += g;
        product += g * xhat;
        d_weight[i] += d_y[i] * xhat;
        d_bias[i] += d_y[i];
    }
    return (struct line_sums){sum, product};
}

static EVERY_MACHINE(void, gradient_line, (const struct line *l, const float *x, const float *d_y,
                     struct line_sums sums, float *d_x), (l, x, d_y, sums, d_x))
{
    const float *weight = l->weight;
    float mean = l->mean, invstd = l->invstd;
    float shift = sums.sum / (float)l->count, tilt = sums.product / (float)l->count;
#pragma omp simd
    for (int64_t i = 0; i < l->count; i++)
        d_x[i] = invstd * (d_y[i] * weight[i] - shift - (x[i] - mean) * invstd * tilt);
}

static void line_measure(const struct call *call, struct line *l, int64_t pixel, const float *x)
{
    const struct layernorm *s = call->settings;
    l->mean = sum_of(x, l->count) / (float)l->count;
    l->invstd = 1 / sqrtf(squares_of(x, l->mean, l->count) / (float)l->count + (float)s->eps);
    if (!call->training) return;
    ((float *)call->saved[LAYERNORM_MEAN].data)[pixel] = l->mean;
    ((float *)call->saved[LAYERNORM_INVSTD].data)[pixel] = l->invstd;
}

static void use_saved(const struct call *call, struct line *l, int64_t pixel)
{
    l->mean = ((const float *)call->saved[LAYERNORM_MEAN].data)[pixel];
    l->invstd = ((const float *)call->saved[LAYERNORM_INVSTD].data)[pixel];
}

static struct line line_of(const struct call *call)
{
    return (struct line){.weight = call->params[0].data, .bias = call->params[1].data,
                         .count = call->x[0].shape.c};
}

static void write_line(const struct line *l, int64_t pixel, const float *x, const struct tensor *to,
                       float *buffer)
{
    float *y = block_open(to, pixel * l->count, buffer);
    normalise_line(l, x, y);
    block_store(to, pixel * l->count, l->count, y);
}

static void forward_piece(const struct call *call, int64_t first, int64_t end, float *lines)
{
    struct line l = line_of(call);
    for (int64_t pixel = first; pixel < end; pixel++) {
        const float *x = block_load(&call->x[0], pixel * l.count, l.count, lines);
        if (call->phase == PHASE_FORWARD) line_measure(call, &l, pixel, x);
        else use_saved(call, &l, pixel);
        write_line(&l, pixel, x, &call->y, lines + l.count);
    }
}

/* Lines: gradients of weight and bias, then buffers. */
static void backward_piece(const struct call *call, int64_t first, int64_t end, float *lines)
{
    struct line l = line_of(call);
    float *buffer = lines + 2 * l.count;
    const struct tensor *again = call_operand(call, OPERAND_Y_RECOMPUTED);
    for (int64_t pixel = first; pixel < end; pixel++) {
        const float *x = block_load(&call->x[0], pixel * l.count, l.count, buffer);
        const float *d_y = block_load(&call->d_y, pixel * l.count, l.count, buffer + l.count);
        use_saved(call, &l, pixel);
        struct line_sums sums = add_gradients(&l, x, d_y, lines, lines + l.count);
        if (again) write_line(&l, pixel, x, again, buffer + 2 * l.count);
        if (!call->d_x[0].data) continue;
        float *d_x = block_open(&call->d_x[0], pixel * l.count, buffer);
        gradient_line(&l, x, d_y, sums, d_x);
        block_store(&call->d_x[0], pixel * l.count, l.count, d_x);
    }
}

static struct pixels_work work_of(const struct call *call)
{
    if (call->phase != PHASE_BACKWARD) return (struct pixels_work){.lines = 2, .piece = forward_piece};
    int lines = call_operand(call, OPERAND_Y_RECOMPUTED) ? 5 : 4;
    return (struct pixels_work){.sums = 2, .lines = lines, .piece = backward_piece,
                                .totals = {&call->d_params[0], &call->d_params[1]}};
}

static size_t layernorm_cpu_workspace(const struct call *call)
{
    struct pixels_work work = work_of(call);
    return pixels_workspace(call->x[0].shape, &work);
}

static enum status layernorm_cpu_run(const struct call *call)
{
    struct pixels_work work = work_of(call);
    pixels_run(call, call->x[0].shape, &work);
    return OK;
}

const struct op_code layernorm_cpu = {
    .workspace = layernorm_cpu_workspace,
    .forward = layernorm_cpu_run,
    .backward = layernorm_cpu_run,
    .recompute = layernorm_cpu_run,
};
