/* optimizer_lamb.h: lamb's rule: first the moments of all elements, then norms, then the weights. */
#pragma once

#include "kernels/optimizer/optimizer_rule.h"

struct lamb_factors {
    float gradient, decay, beta1, beta2, rest1, rest2;   /* rest: 1 - beta */
    float scale1;              /* 1 / (1 - beta1^t) */
    float root2;               /* 1 / sqrt(1 - beta2^t) */
    float eps;
    float lr;                  /* times the trust ratio, if there is one */
};

ANYWHERE struct lamb_factors lamb_factors(const struct optimizer_settings *s,
                                          const struct optimizer_numbers *n)
{
    double beta1 = n->momentum, t = (double)n->t;
    struct lamb_factors f = {
        .gradient = n->factor,
        .decay = (float)n->decay,
        .beta1 = (float)beta1,
        .beta2 = (float)s->beta2,
        .rest1 = (float)(1 - beta1),
        .rest2 = (float)(1 - s->beta2),
        .scale1 = (float)(1 / (1 - pow(beta1, t))),
        .root2 = (float)(1 / sqrt(1 - pow(s->beta2, t))),
        .eps = (float)s->eps,
        .lr = (float)n->lr,
    };
    return f;
}

/* lr for a parameter of which these are the sums of squares, of weights and of directions. */
ANYWHERE float lamb_lr(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                       double w_squares, double r_squares)
{
    return (float)(n->lr * (w_squares > 0 && r_squares > 0 ? sqrt(w_squares / r_squares) : 1));
}

/* The direction r; lr * r is subtracted from the weights. */
ANYWHERE float lamb_direction(const struct lamb_factors *f, float w, float mean, float square)
{
    return mean * f->scale1 / (sqrtf(square) * f->root2 + f->eps) + f->decay * w;
}

ANYWHERE void lamb_moments(const struct lamb_factors *f, float gradient, float *mean, float *square)
{
    float g = gradient * f->gradient;
    *mean = f->beta1 * *mean + f->rest1 * g;
    *square = f->beta2 * *square + f->rest2 * g * g;
}

ANYWHERE void lamb_element(const struct lamb_factors *f, float *w, float mean, float square)
{
    *w -= f->lr * lamb_direction(f, *w, mean, square);
}
