/* pointwise_loss.h: settings of pointwise_loss, and its losses of a number, with their derivatives, the same
 * on every device. */
#pragma once

#include <math.h>

#include "base/anywhere.h"
#include "kernels/op.h"

enum pointwise_kind { POINTWISE_BCE, POINTWISE_MSE, POINTWISE_L1, POINTWISE_HUBER };

struct pointwise_loss {
    int kind;
    double delta;
    double label_smoothing;
};

/* Target of an output. */
struct pointwise_target {
    double value;
    double weight;             /* bce: of the value, the part of the target that is 1 */
};

ANYWHERE double pointwise_bce(double x, struct pointwise_target t)
{
    double one = t.weight * t.value, zero = 1 - t.value;
    return zero * fmax(x, 0.0) + one * fmax(-x, 0.0) + (zero + one) * log1p(exp(-fabs(x)));
}

ANYWHERE double pointwise_sigmoid(double x)
{
    double small = exp(-fabs(x));
    return (x < 0 ? small : 1) / (1 + small);
}

ANYWHERE double pointwise_huber(double error, double delta)
{
    double size = fabs(error);
    return size <= delta ? 0.5 * error * error : delta * (size - 0.5 * delta);
}

/* The loss of output x; NaN if one of them is. */
ANYWHERE double pointwise_value(const struct pointwise_loss *s, double x, struct pointwise_target t)
{
    double error = x - t.value;
    switch (s->kind) {
    case POINTWISE_MSE: return error * error;
    case POINTWISE_L1: return fabs(error);
    case POINTWISE_HUBER: return pointwise_huber(error, s->delta);
    default: return isnan(error) ? error : pointwise_bce(x, t);
    }
}

/* Its derivative. */
ANYWHERE double pointwise_slope(const struct pointwise_loss *s, double x, struct pointwise_target t)
{
    double error = x - t.value, one = t.weight * t.value, limit = s->kind == POINTWISE_L1 ? 0 : s->delta;
    switch (s->kind) {
    case POINTWISE_MSE: return 2 * error;
    case POINTWISE_L1: return error > 0 ? 1 : error < 0 ? -1 : error;
    case POINTWISE_HUBER: return error > limit ? limit : error < -limit ? -limit : error;
    default: return (1 - t.value + one) * pointwise_sigmoid(x) - one;
    }
}
