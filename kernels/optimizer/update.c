/* update.c: a step's update on the CPU. */
#include "kernels/optimizer/update.h"

#include <string.h>

#include "kernels/optimizer/optimizer_step.h"
#include "kernels/optimizer/optimizer_walk.h"

static enum status update_open(struct update *update)
{
    return OK;
}

static void update_close(struct update *update)
{
}

static enum status update_count(const struct update *update)
{
    if (!update_stopped(update->stop_at, update->state)) update->state->step++;
    *update->scale = update->state->scaler.scale;
    return OK;
}

/* Measures each parameter as a whole, which is its first chunk here. */
static enum status update_measure(const struct update *update, double *squares)
{
    memset(squares, 0, (size_t)update->squares.count * sizeof *squares);
    for (int i = 0; i < update->param_count; i++)
        squares[update->squares.first[i]] = optimizer_gradient_squares(&update->params[i]);
    return OK;
}

/* Adds up the squares of all stages: of each chunk, one stage's is not zero. */
static double squares_of(const struct update *update)
{
    const struct update_squares *squares = &update->squares;
    double sum = 0;
    for (int64_t k = 0; k < squares->count; k++)
        for (int stage = 0; stage < squares->stages; stage++) sum += squares->all[stage * squares->count + k];
    return sum;
}

static enum status update_apply(const struct update *update)
{
    if (update_stopped(update->stop_at, update->state)) {
        update->state->skipped = 1;
        return OK;
    }
    int k = update_rate(update->rates, update->state);
    const struct optimizer_options options = {.optimizer = update->optimizer,
                                              .settings = &update->settings,
                                              .scaling = &update->scaling,
                                              .lr = update->rates->lr[k],
                                              .momentum = update->rates->momentum[k],
                                              .ema = update->rates->ema[k],
                                              .sharing = update->sharing};
    double squares = update->squares.stages > 0 ? squares_of(update)
                                                : optimizer_squares(update->params, update->param_count);
    return optimizer_step(&options, squares, update->params, update->param_count, update->state);
}

static void average_floats(float *average, const float *now, int64_t count, double decay)
{
    for (int64_t i = 0; i < count; i++) average[i] = (float)(decay * average[i] + (1 - decay) * now[i]);
}

static enum status update_average(const struct update *update)
{
    if (update->state->skipped) return OK;
    for (int i = 0; i < update->average_count; i++) {
        const struct update_average *a = &update->averages[i];
        size_t bytes = (size_t)a->count * dtype_bytes(a->dtype);
        if (a->dtype == F32) average_floats(a->average, a->now, a->count, (double)update->state->ema);
        else memcpy(a->average, a->now, bytes);
        if (update->settings.lookahead && update->state->ema < 1) memcpy(a->now, a->average, bytes);
    }
    return OK;
}

const struct update_code update_cpu = {update_open, update_close, update_count, update_apply,
                                       update_average, update_measure};
