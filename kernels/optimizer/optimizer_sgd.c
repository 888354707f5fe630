/* sgd: stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0):
 *     g += decay * w;  buffer = momentum * buffer + g;  w -= lr * (nesterov ? g + momentum * buffer : buffer)
 * The buffer starts at zero, so that the first step has buffer = g. */
#include "kernels/optimizer/optimizer_sgd.h"

#include "kernels/optimizer/optimizer_walk.h"

OPTIMIZER_UPDATE(sgd, &part->slots[0][i])

static void sgd_reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                          double momentum, float factor, int64_t t)
{
    double decay = optimizer_decay(s, param);
    float *buffer = param->slots[0];
    for (int64_t i = 0; i < param->count; i++) {
        double w = param->master[i], g = (double)param->gradient[i] * factor;
        g += decay * w;
        double b = momentum * buffer[i] + g;
        w -= lr * (s->nesterov ? g + momentum * b : b);
        buffer[i] = (float)b;
        param->master[i] = (float)w;
    }
}

const struct optimizer sgd_optimizer = {
    .name = "sgd",
    .help = "Stochastic gradient descent with momentum.",
    .has_nesterov = true,
    .slots = 1,
    .slot_names = {"momentum_buffer"},
    .lr = 0.05,
    .initial = {.momentum = 0.9},
    .update = sgd_update,
    .reference = sgd_reference,
};
