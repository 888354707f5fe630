#include "amp/scaler.h"

struct scaler scaler_start(const struct scaler_settings *settings)
{
    double scale = settings->scale;
    if (settings->dynamic)
        scale = scaler_clamp(settings->init_scale, settings->min_scale, settings->max_scale);
    return (struct scaler){.scale = (float)scale};
}
