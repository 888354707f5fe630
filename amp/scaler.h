/* scaler.h: the dynamic loss scale: the state machine of torch's GradScaler with a minimum and a maximum. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/anywhere.h"

struct scaler_settings {
    bool dynamic;
    double scale;              /* the static scale, when not dynamic */
    double init_scale;         /* 65536 */
    double growth;             /* 2 */
    double backoff;            /* 0.5 */
    int64_t growth_interval;   /* 2000 good steps in a row */
    double min_scale;          /* 1 */
    double max_scale;          /* 2^24 */
};

/* Plain data, which is in the store, on the device. */
struct scaler {
    float scale;
    int32_t good_steps;        /* since the last growth or overflow */
    int32_t floor_overflows;   /* overflows in a row with the scale already at its floor */
};

/* Scaling off (fp32, bf16 unless asked for) is static with scale 1. */
struct scaler scaler_start(const struct scaler_settings *settings);

ANYWHERE double scaler_clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* Products are taken in double and rounded once, as torch's _amp_update_scale_ does. */
ANYWHERE void scaler_move(const struct scaler_settings *settings, struct scaler *scaler, double factor)
{
    scaler->scale = (float)scaler_clamp(scaler->scale * factor, settings->min_scale, settings->max_scale);
    scaler->good_steps = 0;
}

/* After a step: backs off on overflow, grows after growth_interval good steps. A static scale
 * never moves; floor_overflows counts for it too. */
ANYWHERE void scaler_update(const struct scaler_settings *settings, struct scaler *scaler, bool overflow)
{
    if (!overflow) scaler->floor_overflows = 0;
    else if (!settings->dynamic || scaler->scale <= (float)settings->min_scale) scaler->floor_overflows++;
    if (!settings->dynamic) return;
    if (overflow) scaler_move(settings, scaler, settings->backoff);
    else if (++scaler->good_steps >= settings->growth_interval)
        scaler_move(settings, scaler, settings->growth);
}

/* The finite check of a step, before its update: sets *norm to the norm of the unscaled gradients, given the
 * sum of the squares of all scaled ones, and updates the scale. Returns false if the step must be skipped.
 * Squares of floats do not overflow a double, so their sum is finite if and only if every gradient is. */
ANYWHERE bool scaler_check(const struct scaler_settings *settings, struct scaler *scaler, double squares,
                           double *norm)
{
    *norm = sqrt(squares) / (double)scaler->scale;
    bool finite = isfinite(*norm);
    scaler_update(settings, scaler, !finite);
    return finite;
}
