/* optimizer_lars.h: lars' rule. */
#pragma once

#include "kernels/optimizer/optimizer_rule.h"

struct lars_factors {
    float gradient, decay, momentum;
    float lr;                  /* times the trust ratio, if there is one */
    float ahead, behind;       /* factors of this step and of the buffer */
};

ANYWHERE struct lars_factors lars_factors(const struct optimizer_settings *s,
                                          const struct optimizer_numbers *n)
{
    struct lars_factors f = {
        .gradient = n->factor,
        .decay = (float)n->decay,
        .momentum = (float)n->momentum,
        .lr = (float)n->lr,
        .ahead = s->nesterov ? 1.0f : 0.0f,
        .behind = s->nesterov ? (float)n->momentum : 1.0f,
    };
    return f;
}

/* lr for a parameter of which these are the sums of squares; the gradient's as it is, scaled. */
ANYWHERE float lars_lr(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                       double w_squares, double g_squares)
{
    double w = sqrt(w_squares), g = sqrt(g_squares) * n->factor;
    return (float)(n->lr * (g > 0 && w > 0 ? s->trust * w / (g + n->decay * w) : 1));
}

ANYWHERE void lars_element(const struct lars_factors *f, float gradient, float *w, float *buffer)
{
    float g = gradient * f->gradient + f->decay * *w;
    float step = f->lr * g;
    *buffer = f->momentum * *buffer + step;
    *w -= f->ahead * step + f->behind * *buffer;
}
