/* adam: adaptive moments (Kingma, Ba 2015), as torch.optim.Adam, weight decay added to the gradient; adamw:
 * with decoupled weight decay (Loshchilov, Hutter 2019), as torch.optim.AdamW:
 *     adam: g += decay * w;  adamw: w -= lr * decay * w
 *     m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2
 *     w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps) */
#include "kernels/optimizer/optimizer_adam.h"

#include "kernels/optimizer/optimizer_walk.h"

OPTIMIZER_UPDATE(adam, &part->slots[0][i], &part->slots[1][i])

static void adam_reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                           double beta1, float factor, int64_t t)
{
    double step = lr / (1 - pow(beta1, (double)t)), root = sqrt(1 - pow(s->beta2, (double)t));
    double decay = optimizer_decay(s, param);
    float *mean = param->slots[0];
    float *square = param->slots[1];
    for (int64_t i = 0; i < param->count; i++) {
        double w = param->master[i], g = (double)param->gradient[i] * factor;
        if (s->decoupled_weight_decay) w -= lr * decay * w;
        else g += decay * w;
        double m = beta1 * mean[i] + (1 - beta1) * g, v = s->beta2 * square[i] + (1 - s->beta2) * g * g;
        w -= step * m / (sqrt(v) / root + s->eps);
        mean[i] = (float)m;
        square[i] = (float)v;
        param->master[i] = (float)w;
    }
}

const struct optimizer adam_optimizer = {
    .name = "adam",
    .momentum_is_beta1 = true,
    .help = "Adam.",
    .slots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .lr = 0.001,
    .initial = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    .update = adam_update,
    .reference = adam_reference,
};

const struct optimizer adamw_optimizer = {
    .name = "adamw",
    .momentum_is_beta1 = true,
    .help = "AdamW: Adam with decoupled weight decay.",
    .slots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .lr = 0.001,
    .initial = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01,
                .decoupled_weight_decay = true},
    .update = adam_update,
    .reference = adam_reference,
};
