/* forecast.h: the predicted memory and time of a training step, without a device. */
#pragma once

#include "forecast/best_pipeline.h"
#include "session/step_times.h"

struct forecast_options {
    int hosts;                         /* number of the ranks' hosts */
    double link_bytes_per_second;      /* of a host, each way */
    double link_seconds;               /* latency of a message between hosts; 0: the machine's */
    const struct measured_times *times;    /* NULL: all times are modelled */
    bool compares;                     /* with alternatives */
};

/* A stage of a pipeline. */
struct forecast_stage {
    char *first, *last;                /* layers */
    char *layers;                      /* "conv1 to bn3, conv9 to fc" */
    struct compiled compiled;
    struct budget bytes;               /* of a rank's memory */
    int64_t sent_bytes;                /* by a rank in a step, to other stages */
};

struct forecast {
    struct compiled compiled;          /* of the stage with the largest memory, which owns it */
    struct budget bytes;
    struct budget tiles;               /* of an evaluation alone (session/tiles.h); total 0: not in tiles */
    struct cluster cluster;
    struct step_time time;
    enum step_time_origin origin;      /* of the time, where options.times are NULL */
    /* Set with several ranks if options.compares: */
    struct best_pipeline pipeline;
    double alone_ms;                   /* of a rank's share of the images on an independent device */
    double data_parallel_ms;           /* without stages; NAN: the ranks do not divide the batch */
    struct forecast_stage *stages;     /* [cluster.stages] */
};

/* FAILED, with a message, if ranks would deadlock. */
enum status forecast_make(const struct session *session, const struct forecast_options *options,
                          struct forecast *forecast);
void forecast_free(struct forecast *forecast);
