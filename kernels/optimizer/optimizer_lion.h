/* optimizer_lion.h: lion's rule. */
#pragma once

#include "kernels/optimizer/optimizer_rule.h"

struct lion_factors {
    float gradient;
    float keep;                          /* w's own factor */
    float beta1, beta2, rest1, rest2;    /* rest: 1 - beta */
    float lr;
};

ANYWHERE struct lion_factors lion_factors(const struct optimizer_settings *s,
                                          const struct optimizer_numbers *n)
{
    struct lion_factors f = {
        .gradient = n->factor,
        .keep = (float)(1 - n->lr * n->decay),
        .beta1 = (float)n->momentum,
        .beta2 = (float)s->beta2,
        .rest1 = (float)(1 - n->momentum),
        .rest2 = (float)(1 - s->beta2),
        .lr = (float)n->lr,
    };
    return f;
}

ANYWHERE void lion_element(const struct lion_factors *f, float gradient, float *w, float *mean)
{
    float g = gradient * f->gradient, c = f->beta1 * *mean + f->rest1 * g;
    float step = c > 0 ? f->lr : c < 0 ? -f->lr : 0;
    *mean = f->beta2 * *mean + f->rest2 * g;
    *w = f->keep * *w - step;
}
