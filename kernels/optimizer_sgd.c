/* sgd: stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0):
 *     g += decay * w;  buffer = momentum * buffer + g;  w -= lr * (nesterov ? g + momentum * buffer : buffer)
 * The buffer starts at zero, so that the first step has buffer = g. */
#include "kernels/cpu.h"
#include "kernels/optimizer_walk.h"

struct factors {
    float gradient, decay, momentum, lr;
    float ahead;   /* how much of the gradient, and of the buffer, is followed */
    float behind;
};

EVERY_MACHINE static void update_part(const struct optimizer_param *part, const void *factors, double sums[2])
{
    (void)sums;
    const struct factors *f = factors;
    float *w = part->master;
    float *buffer = part->slots[0];
#pragma omp simd
    for (int64_t i = 0; i < part->count; i++) {
        float g = part->gradient[i] * f->gradient + f->decay * w[i];
        buffer[i] = f->momentum * buffer[i] + g;
        w[i] -= f->lr * (f->ahead * g + f->behind * buffer[i]);
    }
}

static void update(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                   double momentum, float factor, int64_t t)
{
    (void)t;
    struct factors f = {
        .gradient = factor,
        .decay = (float)optimizer_decay(s, param),
        .momentum = (float)momentum,
        .lr = (float)lr,
        .ahead = s->nesterov ? 1 : 0,
        .behind = s->nesterov ? (float)momentum : 1,
    };
    optimizer_walk(param, update_part, &f, NULL);
}

static void reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                      double momentum, float factor, int64_t t)
{
    (void)t;
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
    .help = "Gradient descent with momentum.",
    .slots = 1,
    .slot_names = {"momentum_buffer"},
    .initial = {.momentum = 0},
    .update = update,
    .reference = reference,
};
