/* forecast.h: the memory and time that a training step will take, worked out without a device. */
#pragma once

#include "compile/cluster.h"
#include "measured_times.h"
#include "session/step.h"

struct forecast_options {
    int hosts;                         /* that the ranks lie on */
    double link_bytes_per_second;      /* of a host, each way */
    const struct measured_times *times;    /* NULL: all times are modelled */
};

struct forecast {
    struct compiled compiled;          /* of one rank */
    struct step_bytes bytes;
    struct cluster cluster;
    double step_ms;                    /* simulated; until the last rank has ended */
    double alone_ms;                   /* of a rank's images on a GPU by itself */
    double exposed_ms, jitter_ms;      /* of step_ms: by exchanges; by ranks that take longer than others */
};

enum status forecast_make(const struct session *session, const struct forecast_options *options,
                          struct forecast *forecast);
void forecast_free(struct forecast *forecast);

/* Floating-point operations of a layer's forward: every weight is used once for each output pixel; a multiply
 * and an add each. */
double forecast_layer_flops(const struct graph *graph, int node, int batch);
