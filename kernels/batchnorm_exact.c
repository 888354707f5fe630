/* batchnorm_exact.c: batchnorm of small fp32 tensors in double, rounded once: what exact.h does for
 * convolution, and for the same reason. The formulas are those of the reference, element by element.
 *
 * A task owns some channels and walks over their pixels, so that sums do not depend on threads. */
#include <math.h>
#include <string.h>

#include "batchnorm.h"
#include "kernels/cpu.h"

#define CHANNELS 16            /* a task: a cache line of every pixel */
#define SMALL (1 << 19)        /* elements; larger tensors would feel it */

bool batchnorm_is_small(const struct call *call)
{
    return call->x[0].dtype == F32 && shape_count(call->x[0].shape) < SMALL;
}

/* An activation is the identity between 0 and `top`, constant above, and below 0 a line or zero. */
struct bend {
    double negative, top;
};

static struct bend bend_of(const struct batchnorm *s)
{
    switch ((enum activation)s->activation) {
    case ACTIVATION_NONE: return (struct bend){1, INFINITY};
    case ACTIVATION_RELU: return (struct bend){0, INFINITY};
    case ACTIVATION_RELU6: return (struct bend){0, 6};
    case ACTIVATION_LEAKY_RELU: return (struct bend){s->slope, INFINITY};
    }
    return (struct bend){1, INFINITY};
}

INLINE double bend(const struct bend *b, double z)
{
    double below = b->negative == 0 ? 0 : b->negative * z;
    return z <= 0 ? below : z >= b->top ? b->top : z;
}

INLINE double bend_slope(const struct bend *b, double side)
{
    return side <= 0 ? b->negative : side >= b->top ? 0 : 1;
}

/* Some channels of a tensor: `count` pixels, `stride` elements apart. */
struct columns {
    int64_t first, channels, count, stride;
    struct bend bend;
    double mean[CHANNELS], invstd[CHANNELS], weight[CHANNELS], bias[CHANNELS];
};

static struct columns columns_open(const struct call *call, int64_t first)
{
    const struct batchnorm *s = call->settings;
    int64_t stride = call->x[0].shape.c;
    struct columns c = {.first = first,
                        .channels = min_count(CHANNELS, stride - first),
                        .count = shape_count(call->x[0].shape) / stride,
                        .stride = stride,
                        .bend = bend_of(s)};
    for (int64_t k = 0; k < c.channels; k++) {
        c.weight[k] = s->affine ? tensor_get(&call->params[0], first + k) : 1;
        c.bias[k] = s->affine ? tensor_get(&call->params[1], first + k) : 0;
    }
    return c;
}

static float *column_data(const struct tensor *tensor, const struct columns *c)
{
    return tensor->data ? (float *)tensor->data + c->first : NULL;
}

EVERY_MACHINE static void add_up(const float *x, const struct columns *c, double *sum)
{
    for (int64_t i = 0; i < c->count; i++) {
#pragma omp simd
        for (int64_t k = 0; k < c->channels; k++) sum[k] += x[i * c->stride + k];
    }
}

EVERY_MACHINE static void add_up_squares(const float *x, const struct columns *c, double *squares)
{
    for (int64_t i = 0; i < c->count; i++) {
#pragma omp simd
        for (int64_t k = 0; k < c->channels; k++) {
            double deviation = x[i * c->stride + k] - c->mean[k];
            squares[k] += deviation * deviation;
        }
    }
}

static void measure(const struct call *call, struct columns *c)
{
    const struct batchnorm *s = call->settings;
    const float *x = column_data(&call->x[0], c);
    double squares[CHANNELS] = {0}, n = (double)c->count;
    memset(c->mean, 0, sizeof c->mean);
    add_up(x, c, c->mean);
    for (int64_t k = 0; k < c->channels; k++) c->mean[k] /= n;
    add_up_squares(x, c, squares);
    for (int64_t k = 0; k < c->channels; k++) {
        tensor_set(&call->saved[SAVED_MEAN], c->first + k, c->mean[k]);
        tensor_set(&call->saved[SAVED_INVSTD], c->first + k, 1 / sqrt(squares[k] / n + s->eps));
        tensor_set(&call->saved[SAVED_VARIANCE], c->first + k, c->count > 1 ? squares[k] / (n - 1) : 0);
    }
}

/* What forward saved: rounded, so that forward and all that comes after it go by the same numbers. */
static void use_saved(const struct call *call, struct columns *c)
{
    for (int64_t k = 0; k < c->channels; k++) {
        c->mean[k] = tensor_get(&call->saved[SAVED_MEAN], c->first + k);
        c->invstd[k] = tensor_get(&call->saved[SAVED_INVSTD], c->first + k);
    }
}

static void use_running(const struct call *call, struct columns *c)
{
    const struct batchnorm *s = call->settings;
    struct batchnorm_statistics at = batchnorm_statistics(s);
    for (int64_t k = 0; k < c->channels; k++) {
        c->mean[k] = tensor_get(&call->params[at.mean], c->first + k);
        c->invstd[k] = 1 / sqrt(tensor_get(&call->params[at.variance], c->first + k) + s->eps);
    }
}

INLINE double normalised(const struct columns *c, float x, int64_t k)
{
    return (x - c->mean[k]) * c->invstd[k];
}

EVERY_MACHINE static void normalise(const float *x, const float *residual, float *y, const struct columns *c)
{
    for (int64_t i = 0; i < c->count; i++) {
        int64_t at = i * c->stride;
        if (residual) {
#pragma omp simd
            for (int64_t k = 0; k < c->channels; k++)
                y[at + k] = (float)bend(&c->bend, normalised(c, x[at + k], k) * c->weight[k] + c->bias[k] +
                                                      residual[at + k]);
        } else {
#pragma omp simd
            for (int64_t k = 0; k < c->channels; k++)
                y[at + k] =
                    (float)bend(&c->bend, normalised(c, x[at + k], k) * c->weight[k] + c->bias[k]);
        }
    }
}

static void normalise_columns(const struct call *call, const struct columns *c)
{
    const struct batchnorm *s = call->settings;
    normalise(column_data(&call->x[0], c), s->residual ? column_data(&call->x[1], c) : NULL,
              column_data(&call->y, c), c);
}

enum status batchnorm_exact_forward(const struct call *call)
{
#pragma omp parallel for schedule(static) if (shape_count(call->x[0].shape) > PARALLEL)
    for (int64_t first = 0; first < call->x[0].shape.c; first += CHANNELS) {
        struct columns c = columns_open(call, first);
        if (call->training) {
            measure(call, &c);
            use_saved(call, &c);
        } else {
            use_running(call, &c);
        }
        normalise_columns(call, &c);
    }
    return OK;
}

enum status batchnorm_exact_recompute(const struct call *call)
{
#pragma omp parallel for schedule(static) if (shape_count(call->x[0].shape) > PARALLEL)
    for (int64_t first = 0; first < call->x[0].shape.c; first += CHANNELS) {
        struct columns c = columns_open(call, first);
        use_saved(call, &c);
        normalise_columns(call, &c);
    }
    return OK;
}

/* The gradient behind the activation; `y` tells the side where it is there, else x does. */
INLINE double d_z(const struct columns *c, const float *x, const float *y, const float *d_y, int64_t i,
                  int64_t k)
{
    double side = y ? y[i] : normalised(c, x[i], k) * c->weight[k] + c->bias[k];
    return d_y[i] * bend_slope(&c->bend, side);
}

EVERY_MACHINE static void reduce(const float *x, const float *y, const float *d_y, const struct columns *c,
                                 double *sum, double *product)
{
    for (int64_t i = 0; i < c->count; i++) {
        int64_t at = i * c->stride;
#pragma omp simd
        for (int64_t k = 0; k < c->channels; k++) {
            double dz = d_z(c, x, y, d_y, at + k, k);
            sum[k] += dz;
            product[k] += dz * normalised(c, x[at + k], k);
        }
    }
}

/* d_x may lie over d_y: each element is read before it is written. */
EVERY_MACHINE static void spread(const float *x, const float *y, const float *d_y, const struct columns *c,
                                 const double *sum, const double *product, float *d_x, float *d_residual)
{
    double n = (double)c->count;
    for (int64_t i = 0; i < c->count; i++) {
        int64_t at = i * c->stride;
        for (int64_t k = 0; k < c->channels; k++) {
            double dz = d_z(c, x, y, d_y, at + k, k), xhat = normalised(c, x[at + k], k);
            if (d_residual) d_residual[at + k] = (float)dz;
            if (d_x)
                d_x[at + k] =
                    (float)(c->weight[k] * c->invstd[k] * (dz - (sum[k] + xhat * product[k]) / n));
        }
    }
}

enum status batchnorm_exact_backward(const struct call *call)
{
    const struct batchnorm *s = call->settings;
    bool by_y = s->residual && s->activation != ACTIVATION_NONE;
#pragma omp parallel for schedule(static) if (shape_count(call->x[0].shape) > PARALLEL)
    for (int64_t first = 0; first < call->x[0].shape.c; first += CHANNELS) {
        struct columns c = columns_open(call, first);
        double sum[CHANNELS] = {0}, product[CHANNELS] = {0};
        use_saved(call, &c);
        const float *x = column_data(&call->x[0], &c), *d_y = column_data(&call->d_y, &c);
        const float *y = by_y ? column_data(&call->y, &c) : NULL;
        reduce(x, y, d_y, &c, sum, product);
        for (int64_t k = 0; k < c.channels; k++) {
            if (s->affine && call->d_params[0].data) tensor_set(&call->d_params[0], first + k, product[k]);
            if (s->affine && call->d_params[1].data) tensor_set(&call->d_params[1], first + k, sum[k]);
        }
        spread(x, y, d_y, &c, sum, product, column_data(&call->d_x[0], &c),
               s->residual ? column_data(&call->d_x[1], &c) : NULL);
    }
    return OK;
}
