/* lion: the sign of an interpolated momentum (Chen et al., Symbolic Discovery of Optimization Algorithms,
 * 2023, algorithm 2), with decoupled weight decay:
 *     c = beta1 * m + (1 - beta1) * g;  m = beta2 * m + (1 - beta2) * g
 *     w -= lr * decay * w;  w -= lr * sign(c), which is 0 where c is */
#include "kernels/optimizer/optimizer_lion.h"

#include "kernels/optimizer/optimizer_walk.h"

OPTIMIZER_UPDATE(lion, &part->slots[0][i])

static void lion_reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                           double beta1, float factor, int64_t t)
{
    double decay = optimizer_decay(s, param);
    float *mean = param->slots[0];
    for (int64_t i = 0; i < param->count; i++) {
        double w = param->master[i], g = (double)param->gradient[i] * factor;
        double c = beta1 * mean[i] + (1 - beta1) * g, m = s->beta2 * mean[i] + (1 - s->beta2) * g;
        w = (1 - lr * decay) * w - lr * ((c > 0) - (c < 0));
        mean[i] = (float)m;
        param->master[i] = (float)w;
    }
}

const struct optimizer lion_optimizer = {
    .name = "lion",
    .momentum_is_beta1 = true,
    .help = "Lion: the sign of the momentum.",
    .slots = 1,
    .slot_names = {"exp_avg"},
    .lr = 0.0001,
    .initial = {.beta1 = 0.9, .beta2 = 0.99, .decoupled_weight_decay = true},
    .update = lion_update,
    .reference = lion_reference,
};
