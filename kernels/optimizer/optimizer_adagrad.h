/* optimizer_adagrad.h: adagrad's rule. */
#pragma once

#include "kernels/optimizer/optimizer_rule.h"

struct adagrad_factors {
    float gradient, decay, lr, eps;
};

ANYWHERE struct adagrad_factors adagrad_factors(const struct optimizer_settings *s,
                                                const struct optimizer_numbers *n)
{
    struct adagrad_factors f = {n->factor, (float)n->decay, (float)n->lr, (float)s->eps};
    return f;
}

ANYWHERE void adagrad_element(const struct adagrad_factors *f, float gradient, float *w, float *sum)
{
    float g = gradient * f->gradient + f->decay * *w;
    *sum += g * g;
    *w -= f->lr * g / (sqrtf(*sum) + f->eps);
}
