/* rmsprop: step sizes by the running mean square (Hinton 2012), as torch.optim.RMSprop (not centered):
 *     g += decay * w;  square = alpha * square + (1 - alpha) * g^2
 *     buffer = momentum * buffer + g / (sqrt(square) + eps);  w -= lr * buffer */
#include "kernels/optimizer/optimizer_rmsprop.h"

#include "kernels/optimizer/optimizer_walk.h"

OPTIMIZER_UPDATE(rmsprop, &part->slots[0][i], &part->slots[1][i])

static void rmsprop_reference(const struct optimizer_settings *s, const struct optimizer_param *param,
                              double lr, double momentum, float factor, int64_t t)
{
    double decay = optimizer_decay(s, param);
    float *square = param->slots[0];
    float *buffer = param->slots[1];
    for (int64_t i = 0; i < param->count; i++) {
        double w = param->master[i], g = (double)param->gradient[i] * factor;
        g += decay * w;
        double v = s->alpha * square[i] + (1 - s->alpha) * g * g;
        double b = momentum * buffer[i] + g / (sqrt(v) + s->eps);
        w -= lr * b;
        square[i] = (float)v;
        buffer[i] = (float)b;
        param->master[i] = (float)w;
    }
}

const struct optimizer rmsprop_optimizer = {
    .name = "rmsprop",
    .help = "RMSprop.",
    .slots = 2,
    .slot_names = {"square_avg", "momentum_buffer"},
    .lr = 0.001,
    .initial = {.alpha = 0.99, .eps = 1e-8},
    .update = rmsprop_update,
    .reference = rmsprop_reference,
};
