#include "kernels/update.h"

#include <string.h>

static enum status open_cpu(struct update *update)
{
    update->engine = NULL;
    return OK;
}

static void close_cpu(struct update *update)
{
    (void)update;
}

static bool stopped(const struct update *update)
{
    return update->stop_at > 0 && update->state->scaler.floor_overflows >= update->stop_at;
}

static enum status count_cpu(const struct update *update)
{
    *update->scale = update->state->scaler.scale;
    if (!stopped(update)) update->state->step++;
    return OK;
}

static enum status apply_cpu(const struct update *update)
{
    struct optimizer_state *state = update->state;
    if (stopped(update)) {
        state->skipped = 1;
        return OK;
    }
    int k = state->updates > update->rates->updates;
    optimizer_step(update->optimizer, &update->settings, &update->scaling, update->params, update->param_count,
                   update->rates->lr[k], update->rates->momentum[k], state);
    return OK;
}

static void average_one(double decay, const struct update_average *at)
{
    if (at->dtype != F32) {
        memcpy(at->average, at->now, (size_t)at->count * dtype_bytes(at->dtype));
        return;
    }
    float *to = at->average;
    const float *from = at->now;
    for (int64_t i = 0; i < at->count; i++) to[i] = (float)(decay * to[i] + (1 - decay) * from[i]);
}

static enum status average_cpu(const struct update *update)
{
    for (int i = 0; !update->state->skipped && i < update->average_count; i++)
        average_one(update->settings.ema, &update->averages[i]);
    return OK;
}

const struct update_code update_cpu = {
    .open = open_cpu, .close = close_cpu, .count = count_cpu, .apply = apply_cpu, .average = average_cpu,
};
