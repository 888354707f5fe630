/* lars: sgd whose step is scaled, layer by layer, by the weights' norm (You, Gitman, Ginsburg 2017):
 *     ratio = trust * |w| / (|g| + decay * |w|), or 1 where a norm is 0, and for norms and biases, unless
 *         decay_norm_bias
 *     step = lr * ratio * (g + decay * w);  buffer = momentum * buffer + step
 *     w -= nesterov ? step + momentum * buffer : buffer */
#include "kernels/optimizer/optimizer_lars.h"

#include "kernels/optimizer/optimizer_walk.h"

OPTIMIZER_PART(lars, &part->slots[0][i])

static void lars_update(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                        double momentum, float factor, int64_t t)
{
    struct optimizer_numbers n = {lr, momentum, optimizer_decay(s, param), factor, t};
    struct lars_factors f = lars_factors(s, &n);
    if (param->adapt)
        f.lr = lars_lr(s, &n, optimizer_master_squares(param), optimizer_gradient_squares(param));
    optimizer_walk(param, lars_part, &f, NULL);
}

static double trust_ratio(const struct optimizer_settings *s, const struct optimizer_param *param,
                          double factor)
{
    if (!param->adapt) return 1;
    double g = sqrt(optimizer_gradient_squares(param)) * factor, w = sqrt(optimizer_master_squares(param));
    return g > 0 && w > 0 ? s->trust * w / (g + optimizer_decay(s, param) * w) : 1;
}

static void lars_reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                           double momentum, float factor, int64_t t)
{
    double ratio = trust_ratio(s, param, factor);
    double decay = optimizer_decay(s, param);
    float *buffer = param->slots[0];
    for (int64_t i = 0; i < param->count; i++) {
        double w = param->master[i], g = (double)param->gradient[i] * factor;
        double step = lr * ratio * (g + decay * w), b = momentum * buffer[i] + step;
        w -= s->nesterov ? step + momentum * b : b;
        buffer[i] = (float)b;
        param->master[i] = (float)w;
    }
}

const struct optimizer lars_optimizer = {
    .name = "lars",
    .help = "LARS: layer-wise adaptive rate scaling, for large batches.",
    .has_nesterov = true,
    .slots = 1,
    .slot_names = {"momentum_buffer"},
    .lr = 1,
    .initial = {.momentum = 0.9, .trust = 0.001},
    .update = lars_update,
    .reference = lars_reference,
};
