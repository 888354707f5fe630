/* sgd: stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0):
 *     g += decay * w;  buffer = momentum * buffer + g;  w -= lr * (nesterov ? g + momentum * buffer : buffer)
 * The buffer starts at zero, so that the first step has buffer = g. */
#include "optimizer_sgd.h"

#include "kernels/cpu.h"
#include "kernels/optimizer_walk.h"

EVERY_MACHINE static void update_part(const struct optimizer_param *part, const void *factors, double sums[2])
{
    (void)sums;
    const struct sgd_factors *f = factors;
    float *w = part->master;
    float *buffer = part->slots[0];
#pragma omp simd
    for (int64_t i = 0; i < part->count; i++)
        sgd_element(f, part->gradient[i], &w[i], &buffer[i]);
}

static void sgd_update(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                       double momentum, float factor, int64_t t)
{
    struct optimizer_numbers n = {lr, momentum, optimizer_decay(s, param), factor, t};
    struct sgd_factors f = sgd_factors(s, &n);
    optimizer_walk(param, update_part, &f, NULL);
}

static void sgd_reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
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
    .help = "Stochastic gradient descent with momentum.",
    .has_nesterov = true,
    .slots = 1,
    .slot_names = {"momentum_buffer"},
    .initial = {.momentum = 0},
    .update = sgd_update,
    .reference = sgd_reference,
};
