/* forecast.h: the memory and time that a training step will take, worked out without a device. */
#ifndef FORECAST_H
#define FORECAST_H

#include "session/step.h"

struct forecast {
    struct compiled compiled;
    struct step_bytes bytes;
    double step_ms;              /* modelled, not measured */
};

enum status forecast_make(const struct session *session, struct forecast *forecast);
void forecast_free(struct forecast *forecast);

/* Floating-point operations of a layer's forward: every weight is used once for each output pixel; a multiply
 * and an add each. */
double forecast_layer_flops(const struct graph *graph, int node, int batch);

#endif
