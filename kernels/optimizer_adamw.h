/* optimizer_adamw.h: adamw's rule. */
#pragma once

#include "kernels/optimizer_rule.h"

struct adamw_factors {
    float gradient;
    float keep;      /* 1 - lr * decay */
    float beta1, beta2, rest1, rest2;   /* rest: 1 - beta */
    float step;      /* lr / (1 - beta1^t) */
    float root;      /* 1 / sqrt(1 - beta2^t) */
    float eps;
};

ANYWHERE struct adamw_factors adamw_factors(const struct optimizer_settings *s,
                                            const struct optimizer_numbers *n)
{
    double beta1 = n->momentum, t = (double)n->t;
    struct adamw_factors f = {
        .gradient = n->factor,
        .keep = (float)(1 - n->lr * n->decay),
        .beta1 = (float)beta1,
        .beta2 = (float)s->beta2,
        .rest1 = (float)(1 - beta1),
        .rest2 = (float)(1 - s->beta2),
        .step = (float)(n->lr / (1 - pow(beta1, t))),
        .root = (float)(1 / sqrt(1 - pow(s->beta2, t))),
        .eps = (float)s->eps,
    };
    return f;
}

ANYWHERE void adamw_element(const struct adamw_factors *f, float gradient, float *w, float *mean,
                            float *square)
{
    float g = gradient * f->gradient;
    *mean = f->beta1 * *mean + f->rest1 * g;
    *square = f->beta2 * *square + f->rest2 * g * g;
    *w = f->keep * *w - f->step * *mean / (sqrtf(*square) * f->root + f->eps);
}
