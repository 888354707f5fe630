/* update.c: a step's update on the CPU. */
#include "update.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/optimizer_step.h"

struct update_tables {
    struct optimizer_param *params;
    struct update_average *averages;
};

static enum status update_open(struct update *update)
{
    struct update_tables *tables = update->tables = memory_new(1, sizeof *tables);
    tables->params = memory_new((size_t)update->param_count, sizeof *tables->params);
    tables->averages = memory_new((size_t)update->average_count, sizeof *tables->averages);
    for (int i = 0; i < update->param_count; i++) tables->params[i] = update->params[i];
    for (int i = 0; i < update->average_count; i++) tables->averages[i] = update->averages[i];
    return OK;
}

static void update_close(struct update *update)
{
    struct update_tables *tables = update->tables;
    if (!tables) return;
    free(tables->params);
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
    optimizer_step(&options, tables->params, update->param_count, update->state);
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

const struct update_code update_cpu = {update_open, update_close, update_count, update_apply, update_average};
