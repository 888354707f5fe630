/* adagrad: step sizes by the sum of squares (Duchi, Hazan, Singer 2011), as torch.optim.Adagrad (lr_decay 0):
 *     g += decay * w;  sum += g^2;  w -= lr * g / (sqrt(sum) + eps) */
#include "kernels/optimizer/optimizer_adagrad.h"

#include "kernels/optimizer/optimizer_walk.h"

OPTIMIZER_UPDATE(adagrad, &part->slots[0][i])

static void adagrad_reference(const struct optimizer_settings *s, const struct optimizer_param *param,
                              double lr, double momentum, float factor, int64_t t)
{
    double decay = optimizer_decay(s, param);
    float *sum = param->slots[0];
    for (int64_t i = 0; i < param->count; i++) {
        double w = param->master[i], g = (double)param->gradient[i] * factor;
        g += decay * w;
        double v = sum[i] + g * g;
        w -= lr * g / (sqrt(v) + s->eps);
        sum[i] = (float)v;
        param->master[i] = (float)w;
    }
}

const struct optimizer adagrad_optimizer = {
    .name = "adagrad",
    .help = "Adagrad.",
    .slots = 1,
    .slot_names = {"sum"},
    .lr = 0.01,
    .initial = {.eps = 1e-10},
    .update = adagrad_update,
    .reference = adagrad_reference,
};
