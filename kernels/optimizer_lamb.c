/* lamb: adam whose step is scaled, layer by layer, by the weights' norm (You et al. 2020, algorithm 2):
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay * w
 *     w -= lr * |w| / |r| * r, the ratio 1 for norms and biases, and where a norm is zero */
#include <math.h>

#include "kernels/cpu.h"
#include "kernels/optimizer_walk.h"

struct factors {
    float gradient, decay, beta1, beta2, rest1, rest2;   /* rest: 1 - beta */
    float scale1;                                        /* 1 / (1 - beta1^t) */
    float root2;                                         /* 1 / sqrt(1 - beta2^t) */
    float eps;
    float lr;                                            /* times the ratio */
};

INLINE float direction(const struct factors *f, float w, float mean, float square)
{
    return mean * f->scale1 / (sqrtf(square) * f->root2 + f->eps) + f->decay * w;
}

/* Moves the moments; sums the squares of w and r. */
EVERY_MACHINE static void moments_part(const struct optimizer_param *part, const void *factors,
                                       double sums[2])
{
    const struct factors own = *(const struct factors *)factors, *f = &own;   /* apart from what is written */
    float *mean = part->slots[0], *square = part->slots[1];
    const float *gradient = part->gradient, *master = part->master;
    double w_squares = 0, r_squares = 0;
#pragma omp simd reduction(+ : w_squares, r_squares)
    for (int64_t i = 0; i < part->count; i++) {
        float g = gradient[i] * f->gradient, w = master[i];
        mean[i] = f->beta1 * mean[i] + f->rest1 * g;
        square[i] = f->beta2 * square[i] + f->rest2 * g * g;
        float r = direction(f, w, mean[i], square[i]);
        w_squares += (double)w * (double)w;
        r_squares += (double)r * (double)r;
    }
    sums[0] += w_squares;
    sums[1] += r_squares;
}

EVERY_MACHINE static void update_part(const struct optimizer_param *part, const void *factors, double sums[2])
{
    (void)sums;
    const struct factors *f = factors;
    const float *mean = part->slots[0], *square = part->slots[1];
    float *w = part->master;
#pragma omp simd
    for (int64_t i = 0; i < part->count; i++) w[i] -= f->lr * direction(f, w[i], mean[i], square[i]);
}

static double trust_ratio(const struct optimizer_param *param, double w_squares, double r_squares)
{
    return param->adapt && w_squares > 0 && r_squares > 0 ? sqrt(w_squares / r_squares) : 1;
}

static void update(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                   double beta1, float factor, int64_t t)
{
    struct factors f = {
        .gradient = factor,
        .decay = (float)optimizer_decay(s, param),
        .beta1 = (float)beta1,
        .beta2 = (float)s->beta2,
        .rest1 = (float)(1 - beta1),
        .rest2 = (float)(1 - s->beta2),
        .scale1 = (float)(1 / (1 - pow(beta1, (double)t))),
        .root2 = (float)(1 / sqrt(1 - pow(s->beta2, (double)t))),
        .eps = (float)s->eps,
    };
    double sums[2];
    optimizer_walk(param, moments_part, &f, sums);
    f.lr = (float)(lr * trust_ratio(param, sums[0], sums[1]));
    optimizer_walk(param, update_part, &f, NULL);
}

static double reference_direction(const struct optimizer_settings *s, const struct optimizer_param *param,
                                  int64_t i, double beta1, int64_t t)
{
    double m = param->slots[0][i] / (1 - pow(beta1, (double)t));
    double v = param->slots[1][i] / (1 - pow(s->beta2, (double)t));
    return m / (sqrt(v) + s->eps) + optimizer_decay(s, param) * param->master[i];
}

static void reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                      double beta1, float factor, int64_t t)
{
    float *mean = param->slots[0], *square = param->slots[1];
    double w_squares = 0, r_squares = 0;
    for (int64_t i = 0; i < param->count; i++) {
        double g = (double)param->gradient[i] * factor;
        mean[i] = (float)(beta1 * mean[i] + (1 - beta1) * g);
        square[i] = (float)(s->beta2 * square[i] + (1 - s->beta2) * g * g);
        w_squares += (double)param->master[i] * param->master[i];
        r_squares += pow(reference_direction(s, param, i, beta1, t), 2);
    }
    double ratio = trust_ratio(param, w_squares, r_squares);
    for (int64_t i = 0; i < param->count; i++)
        param->master[i] -= (float)(lr * ratio * reference_direction(s, param, i, beta1, t));
}

const struct optimizer lamb_optimizer = {
    .name = "lamb",
    .momentum_is_beta1 = true,
    .help = "Layer-wise adaptive moments, for large batches.",
    .slots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .initial = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 0.01},
    .update = update,
    .reference = reference,
};
