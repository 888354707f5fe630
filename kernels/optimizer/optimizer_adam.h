/* optimizer_adam.h: the rule of adam and adamw. */
#pragma once

#include "kernels/optimizer/optimizer_rule.h"

struct adam_factors {
    float gradient;
    float decay, keep;   /* added to the gradient, times w; w's own factor, of decoupled decay */
    float beta1, beta2, rest1, rest2;   /* rest: 1 - beta */
    float step;      /* lr / (1 - beta1^t) */
    float root;      /* 1 / sqrt(1 - beta2^t) */
    float eps;
};

ANYWHERE struct adam_factors adam_factors(const struct optimizer_settings *s,
                                          const struct optimizer_numbers *n)
{
    double beta1 = n->momentum, t = (double)n->t;
    struct adam_factors f = {
        .gradient = n->factor,
        .decay = s->decoupled_weight_decay ? 0 : (float)n->decay,
        .keep = s->decoupled_weight_decay ? (float)(1 - n->lr * n->decay) : 1,
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

ANYWHERE void adam_element(const struct adam_factors *f, float gradient, float *w, float *mean, float *square)
{
    float g = gradient * f->gradient + f->decay * *w;
    *mean = f->beta1 * *mean + f->rest1 * g;
    *square = f->beta2 * *square + f->rest2 * g * g;
    *w = f->keep * *w - f->step * *mean / (sqrtf(*square) * f->root + f->eps);
}
