#include "kernels/optimizer/optimizer_step.h"

#include <string.h>

#include "kernels/cpu.h"
#include "kernels/optimizer/formulas.h"
#include "kernels/optimizer/optimizer_walk.h"

static EVERY_MACHINE(void, average_part, (const struct optimizer_param *part, const void *factors,
                     double sums[2]), (part, factors, sums))
{
    float keep = *(const float *)factors, take = 1 - keep;
    float *average = part->average;
    const float *master = part->master;
#pragma omp simd
    for (int64_t i = 0; i < part->count; i++) average[i] = keep * average[i] + take * master[i];
}

static void return_part(const struct optimizer_param *part, const void *factors, double sums[2])
{
    memcpy(part->master, part->average, (size_t)part->count * sizeof *part->master);
}

static void copy_part(const struct optimizer_param *part, const void *factors, double sums[2])
{
    dtype_convert(part->low_dtype, part->low, F32, part->master, (size_t)part->count);
}

/* Tensors that follow the weights. */
struct followers {
    const struct optimizer_settings *settings;
    float ema;
};

static void follow(const void *context, const struct optimizer_param *param)
{
    const struct followers *f = context;
    if (param->average && f->settings->ema > 0) {
        optimizer_walk(param, average_part, &f->ema, NULL);
        if (f->settings->lookahead && f->ema < 1) optimizer_walk(param, return_part, NULL, NULL);
    }
    if (param->low) optimizer_walk(param, copy_part, NULL, NULL);
}

double optimizer_squares(const struct optimizer_param *params, int count)
{
    double squares = 0;
    for (int i = 0; i < count; i++) squares += optimizer_gradient_squares(&params[i]);
    return squares;
}

enum status optimizer_step(const struct optimizer_options *options, double squares,
                           const struct optimizer_param *params, int count, struct optimizer_state *state)
{
    const struct optimizer_settings *settings = options->settings;
    struct optimizer_numbers n = {.lr = options->lr, .momentum = options->momentum};
    if (!optimizer_decide(settings, options->scaling, squares, &n, state)) return OK;
    state->ema = (float)options->ema;
    const struct followers followers = {settings, state->ema};
    for (int i = 0; i < count; i++) {
        const struct optimizer_param *param = &params[i];
        if (options->sharing && param->rows > 0) continue;
        options->optimizer->update(settings, param, n.lr * param->lr_scale, n.momentum, n.factor, n.t);
        follow(&followers, param);
    }
    const struct matrix_update matrices = {settings, params, &n, follow, &followers};
    return options->sharing ? matrix_sharing_update(options->sharing, &matrices) : OK;
}
