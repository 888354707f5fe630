/* scaler.h: the loss scale: a state machine of torch's GradScaler with a floor and a ceiling. */
#ifndef AMP_SCALER_H
#define AMP_SCALER_H

#include <stdbool.h>
#include <stdint.h>

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

/* Plain data: lives in the store, on the device that trains. */
struct scaler {
    float scale;
    int32_t good_steps;        /* since the last growth or overflow */
    int32_t floor_overflows;   /* overflows in a row with the scale already at its floor */
};

/* Scaling off (fp32, bf16 unless asked for) is static with scale 1. */
struct scaler scaler_start(const struct scaler_settings *settings);

/* After a step: backs off on overflow, grows after growth_interval good steps. A static scale
 * never moves; floor_overflows counts for it too. */
void scaler_update(const struct scaler_settings *settings, struct scaler *scaler, bool overflow);

#endif
