/* optimizer_rmsprop.h: rmsprop's rule. */
#pragma once

#include "kernels/optimizer/optimizer_rule.h"

struct rmsprop_factors {
    float gradient, decay, alpha, rest, momentum, lr, eps;   /* rest: 1 - alpha */
};

ANYWHERE struct rmsprop_factors rmsprop_factors(const struct optimizer_settings *s,
                                                const struct optimizer_numbers *n)
{
    struct rmsprop_factors f = {
        .gradient = n->factor,
        .decay = (float)n->decay,
        .alpha = (float)s->alpha,
        .rest = (float)(1 - s->alpha),
        .momentum = (float)n->momentum,
        .lr = (float)n->lr,
        .eps = (float)s->eps,
    };
    return f;
}

ANYWHERE void rmsprop_element(const struct rmsprop_factors *f, float gradient, float *w, float *square,
                              float *buffer)
{
    float g = gradient * f->gradient + f->decay * *w;
    *square = f->alpha * *square + f->rest * g * g;
    *buffer = f->momentum * *buffer + g / (sqrtf(*square) + f->eps);
    *w -= f->lr * *buffer;
}
