/* lamb: adam whose step is scaled, layer by layer, by the weights' norm (You et al. 2020, algorithm 2):
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay * w
 *     w -= lr * |w| / |r| * r, the ratio 1 where a norm is 0, and for norms and biases, unless
 *         decay_norm_bias */
#include "kernels/optimizer/optimizer_lamb.h"

#include "kernels/cpu.h"
#include "kernels/optimizer/optimizer_walk.h"

/* Moves the moments; sums the squares of w and r. */
static EVERY_MACHINE(void, moments_part, (const struct optimizer_param *part, const void *factors,
                     double sums[2]), (part, factors, sums))
{
    /* Apart from what is written. */
    const struct lamb_factors own = *(const struct lamb_factors *)factors, *f = &own;
    float *mean = part->slots[0], *square = part->slots[1];
    const float *gradient = part->gradient, *master = part->master;
    double w_squares = 0, r_squares = 0;
#pragma omp simd reduction(+ : w_squares, r_squares)
    for (int64_t i = 0; i < part->count; i++) {
        float w = master[i];
        lamb_moments(f, gradient[i], &mean[i], &square[i]);
        float r = lamb_direction(f, w, mean[i], square[i]);
        w_squares += (double)w * (double)w;
        r_squares += (double)r * (double)r;
    }
    sums[0] += w_squares;
    sums[1] += r_squares;
}

static EVERY_MACHINE(void, update_part, (const struct optimizer_param *part, const void *factors,
                     double sums[2]), (part, factors, sums))
{
    const struct lamb_factors *f = factors;
    const float *mean = part->slots[0], *square = part->slots[1];
    float *w = part->master;
#pragma omp simd
    for (int64_t i = 0; i < part->count; i++) lamb_element(f, &w[i], mean[i], square[i]);
}

static void lamb_update(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                        double beta1, float factor, int64_t t)
{
    struct optimizer_numbers n = {lr, beta1, optimizer_decay(s, param), factor, t};
    struct lamb_factors f = lamb_factors(s, &n);
    double sums[2];
    optimizer_walk(param, moments_part, &f, sums);
    if (param->adapt) f.lr = lamb_lr(s, &n, sums[0], sums[1]);
    optimizer_walk(param, update_part, &f, NULL);
}

static double trust_ratio(const struct optimizer_param *param, double w_squares, double r_squares)
{
    return param->adapt && w_squares > 0 && r_squares > 0 ? sqrt(w_squares / r_squares) : 1;
}

static double reference_direction(const struct optimizer_settings *s, const struct optimizer_param *param,
                                  int64_t i, double beta1, int64_t t)
{
    double m = param->slots[0][i] / (1 - pow(beta1, (double)t));
    double v = param->slots[1][i] / (1 - pow(s->beta2, (double)t));
    return m / (sqrt(v) + s->eps) + optimizer_decay(s, param) * param->master[i];
}

static void lamb_reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
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
    .help = "LAMB: layer-wise adaptive moments, for large batches.",
    .slots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .lr = 0.002,
    .initial = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 0.01},
    .update = lamb_update,
    .reference = lamb_reference,
};
