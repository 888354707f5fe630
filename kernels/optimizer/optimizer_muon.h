/* optimizer_muon.h: muon's rule for matrices; other parameters have adamw's. */
#pragma once

#include "kernels/optimizer/optimizer_adam.h"

struct muon_factors {
    float gradient;
    float momentum, rest;      /* rest: 1 - momentum */
    float ahead, behind;       /* factors of the gradient and of the mean in what is orthogonalised */
    float keep;                /* w's own factor */
    float lr;                  /* times the root of rows / columns, if that is more than 1 */
};

ANYWHERE struct muon_factors muon_factors(const struct optimizer_settings *s,
                                          const struct optimizer_numbers *n, int64_t rows, int64_t columns)
{
    double ratio = (double)rows / (double)columns;
    struct muon_factors f = {
        .gradient = n->factor,
        .momentum = (float)n->momentum,
        .rest = (float)(1 - n->momentum),
        .ahead = s->nesterov ? (float)(1 - n->momentum) : 0,
        .behind = s->nesterov ? (float)n->momentum : 1,
        .keep = (float)(1 - n->lr * n->decay),
        .lr = (float)(n->lr * sqrt(ratio > 1 ? ratio : 1)),
    };
    return f;
}

/* Advances the mean of the gradients; returns the element of the matrix that is orthogonalised. */
ANYWHERE float muon_advance(const struct muon_factors *f, float gradient, float *mean)
{
    float g = gradient * f->gradient;
    *mean = f->momentum * *mean + f->rest * g;
    return f->ahead * g + f->behind * *mean;
}

ANYWHERE void muon_element(const struct muon_factors *f, float orthogonal, float *w)
{
    *w = f->keep * *w - f->lr * orthogonal;
}

/* adamw's: the momentum of the update is muon's. */
ANYWHERE struct adam_factors muon_adam_factors(const struct optimizer_settings *s,
                                               const struct optimizer_numbers *n)
{
    struct optimizer_numbers adam = *n;
    adam.momentum = s->beta1;
    return adam_factors(s, &adam);
}
