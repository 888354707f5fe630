/* update.c: a step's update on the CPU. */
#include "update.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/optimizer_step.h"
#include "kernels/optimizer_walk.h"

struct update_tables {
    struct optimizer_param *params;
    int64_t *first;            /* of struct update_squares */
    struct update_average *averages;
};

static enum status update_open(struct update *update)
{
    struct update_tables *tables = update->tables = memory_new(1, sizeof *tables);
    tables->params = memory_new((size_t)update->param_count, sizeof *tables->params);
    tables->averages = memory_new((size_t)update->average_count, sizeof *tables->averages);
    tables->first = memory_new((size_t)update->param_count, sizeof *tables->first);
    for (int i = 0; i < update->param_count; i++) tables->params[i] = update->params[i];
    for (int i = 0; update->squares.stages > 0 && i < update->param_count; i++)
        tables->first[i] = update->squares.first[i];
    for (int i = 0; i < update->average_count; i++) tables->averages[i] = update->averages[i];
    return OK;
}

static void update_close(struct update *update)
{
    struct update_tables *tables = update->tables;
    if (!tables) return;
    free(tables->params);
    free(tables->first);
    free(tables->averages);
    free(tables);
    update->tables = NULL;
}

static enum status update_count(const struct update *update)
{
    if (!update_stopped(update->stop_at, update->state)) update->state->step++;
    *update->scale = update->state->scaler.scale;
    return OK;
}

/* Of each parameter as a whole, which is its first chunk here. */
static enum status update_measure(const struct update *update, double *squares)
{
    const struct update_tables *tables = update->tables;
    memset(squares, 0, (size_t)update->squares.count * sizeof *squares);
    for (int i = 0; i < update->param_count; i++)
        squares[tables->first[i]] = optimizer_gradient_squares(&tables->params[i]);
    return OK;
}

/* Of each chunk, one stage's is not zero. */
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
    const struct update_tables *tables = update->tables;
    if (update_stopped(update->stop_at, update->state)) {
        update->state->skipped = 1;
        return OK;
    }
    int k = update_rate(update->rates, update->state);
    const struct optimizer_options options = {.optimizer = update->optimizer,
                                              .settings = &update->settings,
                                              .scaling = &update->scaling,
                                              .lr = update->rates->lr[k],
                                              .momentum = update->rates->momentum[k]};
    double squares = update->squares.stages > 0 ? squares_of(update)
                                                : optimizer_squares(tables->params, update->param_count);
    optimizer_step_by(&options, squares, tables->params, update->param_count, update->state);
    return OK;
}

static void average_floats(float *average, const float *now, int64_t count, double decay)
{
    for (int64_t i = 0; i < count; i++) average[i] = (float)(decay * average[i] + (1 - decay) * now[i]);
}

static enum status update_average(const struct update *update)
{
    const struct update_tables *tables = update->tables;
    if (update->state->skipped) return OK;
    for (int i = 0; i < update->average_count; i++) {
        const struct update_average *a = &tables->averages[i];
        if (a->dtype == F32) average_floats(a->average, a->now, a->count, update->settings.ema);
        else memcpy(a->average, a->now, (size_t)a->count * dtype_bytes(a->dtype));
    }
    return OK;
}

const struct update_code update_cpu = {update_open, update_close, update_count, update_apply,
                                       update_average, update_measure};
