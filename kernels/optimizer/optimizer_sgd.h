/* optimizer_sgd.h: sgd's rule. */
#pragma once

#include "kernels/optimizer/optimizer_rule.h"

struct sgd_factors {
    float gradient, decay, momentum, lr;
    float ahead, behind;       /* factors of the gradient and of the buffer */
};

ANYWHERE struct sgd_factors sgd_factors(const struct optimizer_settings *s, const struct optimizer_numbers *n)
{
    struct sgd_factors f = {
        .gradient = n->factor,
        .decay = (float)n->decay,
        .momentum = (float)n->momentum,
        .lr = (float)n->lr,
        .ahead = s->nesterov ? 1.0f : 0.0f,
        .behind = s->nesterov ? (float)n->momentum : 1.0f,
    };
    return f;
}

ANYWHERE void sgd_element(const struct sgd_factors *f, float gradient, float *w, float *buffer)
{
    float g = gradient * f->gradient + f->decay * *w;
    *buffer = f->momentum * *buffer + g;
    *w -= f->lr * (f->ahead * g + f->behind * *buffer);
}
