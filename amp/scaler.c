#include "scaler.h"

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

struct scaler scaler_start(const struct scaler_settings *settings)
{
    double scale = settings->scale;
    if (settings->dynamic) scale = clamp(settings->init_scale, settings->min_scale, settings->max_scale);
    return (struct scaler){.scale = (float)scale};
}

/* Products are taken in double and rounded once, as torch's _amp_update_scale_ does. */
static void scaler_move(const struct scaler_settings *settings, struct scaler *scaler, double factor)
{
    scaler->scale = (float)clamp(scaler->scale * factor, settings->min_scale, settings->max_scale);
    scaler->good_steps = 0;
}

void scaler_update(const struct scaler_settings *settings, struct scaler *scaler, bool overflow)
{
    if (!overflow) scaler->floor_overflows = 0;
    else if (!settings->dynamic || scaler->scale <= (float)settings->min_scale) scaler->floor_overflows++;
    if (!settings->dynamic) return;
    if (overflow) scaler_move(settings, scaler, settings->backoff);
    else if (++scaler->good_steps >= settings->growth_interval)
        scaler_move(settings, scaler, settings->growth);
}
