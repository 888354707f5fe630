/* optimizer_table.c: the optimizers' updates on the CPU, their references in double arithmetic, their
 * table. */
#include "kernels/optimizer/formulas.h"

#include <string.h>

#include "kernels/cpu.h"
#include "kernels/optimizer/optimizer_muon.h"
#include "kernels/optimizer/optimizer_walk.h"

/* ---- Updates ---- */

#define SLOTS_1 &part->slots[0][i]
#define SLOTS_2 &part->slots[0][i], &part->slots[1][i]
#define FORMULA(name, slots) OPTIMIZER_UPDATE(name, SLOTS_##slots)
#include "kernels/optimizer/rules.def"

OPTIMIZER_PART(lars, SLOTS_1)

static void lars_update(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                        double momentum, float factor, int64_t t)
{
    struct optimizer_numbers n = {lr, momentum, optimizer_decay(s, param), factor, t};
    struct lars_factors f = lars_factors(s, &n);
    if (param->adapt)
        f.lr = lars_lr(s, &n, optimizer_master_squares(param), optimizer_gradient_squares(param));
    optimizer_walk(param, lars_part, &f, NULL);
}

/* Moves the moments; sums the squares of w and r. */
static EVERY_MACHINE(void, lamb_moments_part, (const struct optimizer_param *part, const void *factors,
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

static EVERY_MACHINE(void, lamb_update_part, (const struct optimizer_param *part, const void *factors,
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
    optimizer_walk(param, lamb_moments_part, &f, sums);
    if (param->adapt) f.lr = lamb_lr(s, &n, sums[0], sums[1]);
    optimizer_walk(param, lamb_update_part, &f, NULL);
}

/* ---- References ---- */

/* An element's update: of the weight and its slots by the unscaled gradient. */
typedef void reference_element(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                               double g, double *w, double *slots);

static void reference_walk(const struct optimizer_settings *s, const struct optimizer_param *param,
                           const struct optimizer_numbers *n, reference_element *element)
{
    for (int64_t i = 0; i < param->count; i++) {
        double w = param->master[i], slots[OPTIMIZER_MAX_SLOTS] = {0};
        for (int k = 0; k < OPTIMIZER_MAX_SLOTS; k++)
            if (param->slots[k]) slots[k] = param->slots[k][i];
        element(s, n, (double)param->gradient[i] * n->factor, &w, slots);
        for (int k = 0; k < OPTIMIZER_MAX_SLOTS; k++)
            if (param->slots[k]) param->slots[k][i] = (float)slots[k];
        param->master[i] = (float)w;
    }
}

static void sgd_reference_element(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                                  double g, double *w, double *slots)
{
    g += n->decay * *w;
    slots[0] = n->momentum * slots[0] + g;
    *w -= n->lr * (s->nesterov ? g + n->momentum * slots[0] : slots[0]);
}

static void adam_reference_element(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                                   double g, double *w, double *slots)
{
    double beta1 = n->momentum, t = (double)n->t;
    if (s->decoupled_weight_decay) *w -= n->lr * n->decay * *w;
    else g += n->decay * *w;
    slots[0] = beta1 * slots[0] + (1 - beta1) * g;
    slots[1] = s->beta2 * slots[1] + (1 - s->beta2) * g * g;
    *w -= n->lr / (1 - pow(beta1, t)) * slots[0] / (sqrt(slots[1]) / sqrt(1 - pow(s->beta2, t)) + s->eps);
}

static void adagrad_reference_element(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                                      double g, double *w, double *slots)
{
    g += n->decay * *w;
    slots[0] += g * g;
    *w -= n->lr * g / (sqrt(slots[0]) + s->eps);
}

static void rmsprop_reference_element(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                                      double g, double *w, double *slots)
{
    g += n->decay * *w;
    slots[0] = s->alpha * slots[0] + (1 - s->alpha) * g * g;
    slots[1] = n->momentum * slots[1] + g / (sqrt(slots[0]) + s->eps);
    *w -= n->lr * slots[1];
}

static void lion_reference_element(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                                   double g, double *w, double *slots)
{
    double c = n->momentum * slots[0] + (1 - n->momentum) * g;
    slots[0] = s->beta2 * slots[0] + (1 - s->beta2) * g;
    *w = (1 - n->lr * n->decay) * *w - n->lr * ((c > 0) - (c < 0));
}

static void lars_reference_element(const struct optimizer_settings *s, const struct optimizer_numbers *n,
                                   double g, double *w, double *slots)
{
    double step = n->lr * (g + n->decay * *w);
    slots[0] = n->momentum * slots[0] + step;
    *w -= s->nesterov ? step + n->momentum * slots[0] : slots[0];
}

#define FORMULA(name, slots)                                                                                \
    static void name##_reference(const struct optimizer_settings *s, const struct optimizer_param *param,   \
                                 double lr, double momentum, float factor, int64_t t)                       \
    {                                                                                                       \
        struct optimizer_numbers n = {lr, momentum, optimizer_decay(s, param), factor, t};                  \
        reference_walk(s, param, &n, name##_reference_element);                                             \
    }
#include "kernels/optimizer/rules.def"

static double lars_ratio(const struct optimizer_settings *s, const struct optimizer_param *param,
                          double factor)
{
    if (!param->adapt) return 1;
    double g = sqrt(optimizer_gradient_squares(param)) * factor, w = sqrt(optimizer_master_squares(param));
    return g > 0 && w > 0 ? s->trust * w / (g + optimizer_decay(s, param) * w) : 1;
}

static void lars_reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                           double momentum, float factor, int64_t t)
{
    struct optimizer_numbers n = {lr * lars_ratio(s, param, factor), momentum, optimizer_decay(s, param),
                                  factor, t};
    reference_walk(s, param, &n, lars_reference_element);
}

static double lamb_ratio(const struct optimizer_param *param, double w_squares, double r_squares)
{
    return param->adapt && w_squares > 0 && r_squares > 0 ? sqrt(w_squares / r_squares) : 1;
}

static double lamb_reference_direction(const struct optimizer_settings *s,
                                       const struct optimizer_param *param, int64_t i, double beta1,
                                       int64_t t)
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
        r_squares += pow(lamb_reference_direction(s, param, i, beta1, t), 2);
    }
    double ratio = lamb_ratio(param, w_squares, r_squares);
    for (int64_t i = 0; i < param->count; i++)
        param->master[i] -= (float)(lr * ratio * lamb_reference_direction(s, param, i, beta1, t));
}

/* ---- The table ---- */

#define OPTIMIZER(name_, formula, slots_, ...)                                                              \
    const struct optimizer name_##_optimizer = {.name = #name_, .slots = slots_, .update = formula##_update, \
                                                .reference = formula##_reference, __VA_ARGS__};
#include "kernels/optimizer/rules.def"

const struct optimizer *const optimizer_table[] = {
#define OPTIMIZER(name, ...) &name##_optimizer,
#include "kernels/optimizer/rules.def"
    NULL,
};

const struct optimizer *optimizer_find(const char *name)
{
    for (const struct optimizer *const *o = optimizer_table; *o; o++)
        if (strcmp((*o)->name, name) == 0) return *o;
    return NULL;
}

double optimizer_momentum(const struct optimizer *optimizer, const struct optimizer_settings *settings)
{
    return optimizer->momentum_is_beta1 ? settings->beta1 : settings->momentum;
}
