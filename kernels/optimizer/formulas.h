/* formulas.h: the optimizers' formulas, for every device's update (rules.def lists them).
 *
 * A formula is a struct of fp32 factors, the same for all elements of a parameter, a function that computes
 * them for an update, and a function that updates one element. */
#pragma once

#include <math.h>

#include "base/anywhere.h"
#include "kernels/optimizer/optimizer.h"

struct optimizer_numbers {
    double lr, momentum;
    double decay;              /* weight decay that applies to the parameter */
    float factor;              /* unscales and clips the gradient */
    int64_t t;                 /* number of this update, from 1 */
};

/* The optimizer's sequence except the update itself: advances the state, given the sum of the squares of all
 * gradients, and sets factor and t of `numbers`, whose lr and momentum are set. Returns false if the step is
 * skipped. */
ANYWHERE bool optimizer_decide(const struct optimizer_settings *settings,
                               const struct scaler_settings *scaling, double squares,
                               struct optimizer_numbers *numbers, struct optimizer_state *state)
{
    double scale = state->scaler.scale, norm;
    state->skipped = !scaler_check(scaling, &state->scaler, squares, &norm);
    state->grad_norm = (float)norm;
    if (state->skipped) {
        state->skipped_steps++;
        return false;
    }
    double clip = settings->clip_norm > 0 ? fmin(1.0, settings->clip_norm / (norm + 1e-6)) : 1;
    state->updates++;
    state->lr = (float)numbers->lr;
    state->momentum = (float)numbers->momentum;
    numbers->factor = (float)(clip / scale);
    numbers->t = state->updates;
    return true;
}

/* sgd: stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0):
 *     g += decay * w;  buffer = momentum * buffer + g;  w -= lr * (nesterov ? g + momentum * buffer : buffer)
 * The buffer starts at zero, so that the first step has buffer = g. */
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

/* adam: adaptive moments (Kingma, Ba 2015), as torch.optim.Adam, weight decay added to the gradient; adamw:
 * with decoupled weight decay (Loshchilov, Hutter 2019), as torch.optim.AdamW:
 *     adam: g += decay * w;  adamw: w -= lr * decay * w
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps) */
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

/* adagrad: step sizes by the sum of squares (Duchi, Hazan, Singer 2011), as torch.optim.Adagrad (lr_decay 0):
 *     g += decay * w;  sum += g^2;  w -= lr * g / (sqrt(sum) + eps) */
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

/* rmsprop: step sizes by the running mean square (Hinton 2012), as torch.optim.RMSprop (not centered):
 *     g += decay * w;  square = alpha * square + (1 - alpha) * g^2
 *     buffer = momentum * buffer + g / (sqrt(square) + eps);  w -= lr * buffer */
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

/* lion: the sign of an interpolated momentum (Chen et al., Symbolic Discovery of Optimization Algorithms,
 * 2023, algorithm 2), with decoupled weight decay:
 *     c = beta1 * m + (1 - beta1) * g;  m = beta2 * m + (1 - beta2) * g
 *     w -= lr * decay * w;  w -= lr * sign(c), which is 0 where c is */
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

/* lars: sgd whose step is scaled, layer by layer, by the weights' norm (You, Gitman, Ginsburg 2017):
 *     ratio = trust * |w| / (|g| + decay * |w|), or 1 where a norm is 0, and for norms and biases, unless
 *         decay_norm_bias
 *     step = lr * ratio * (g + decay * w);  buffer = momentum * buffer + step
 *     w -= nesterov ? step + momentum * buffer : buffer */
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

/* lamb: adam whose step is scaled, layer by layer, by the weights' norm (You et al. 2020, algorithm 2):
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay * w
 *     w -= lr * |w| / |r| * r, the ratio 1 where a norm is 0, and for norms and biases, unless
 *         decay_norm_bias */
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

/* muon: a momentum whose matrix is orthogonalised (Jordan et al., Muon: An optimizer for hidden layers in
 * neural networks, 2024):
 *     m = momentum * m + (1 - momentum) * g;  u = nesterov ? (1 - momentum) * g + momentum * m : m
 *     o = orthogonalize(u), of the weights as rows x columns: outputs x inputs, of a convolution filters x
 *         all numbers of a filter
 *     w -= lr * decay * w;  w -= lr * sqrt(max(1, rows / columns)) * o
 * Parameters that are not the matrix of a hidden layer (param->rows is 0) are adamw's. */
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
