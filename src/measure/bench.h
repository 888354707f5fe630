/* bench.h: measures a training step: alone, with its data, and by instruction. */
#pragma once

#include "measure/bench_feed.h"
#include "session/step_queue.h"

/* A measurement in progress. */
struct bench {
    struct session session;
    struct store store;
    struct step step;
    struct loader *loader;       /* NULL: the synthetic batch, repeatedly */
    struct exec_batch batch;     /* that one */
    void *images;
    void *labels;
    int64_t epoch;               /* of the loader; -1: none yet */
    double wait_seconds;         /* for the loader, of the measured steps */
    struct feed feed;            /* with a loader */
    double *milliseconds;        /* of the measured steps */
    int steps;
    double start_seconds, loss, first_loss;
    double joules;               /* that this rank's device took in the measured steps; NAN: unknown */
    bool still;                  /* learning rates are 0, so that the loss never diverges, which would make
                                  * updates be skipped */
    struct step_queue queue;
    struct time_spans *spans;         /* activities of the host; NULL: not recorded */
};

/* The data that the session is to be opened with (enum data_wanted). */
static inline unsigned bench_data(bool real)
{
    return real ? DATA_TRAIN : DATA_TRAIN | DATA_OPTIONAL;
}

/* Opens with the configured data if `real`, otherwise with a synthetic batch. The caller has set `steps`,
 * opened the session and zeroed the rest, and closes it, also after a failure. Ranks open theirs together. */
enum status bench_open(bool real, struct bench *bench);
void bench_close(struct bench *bench);

/* Device memory that it takes. */
struct budget bench_bytes(const struct bench *bench);

/* Steps run back to back as in training; the time of a step is from the end of the preceding one to its
 * own. */
enum status bench_measure(struct bench *bench, int warmup);

/* Measures the loader alone, the step alone, and finally the combination, whose times are kept. */
enum status bench_measure_feed(struct bench *bench, int warmup);

/* The quantile of the measured times; sorts them. */
double bench_percentile(const struct bench *bench, double share);

/* One step, started and collected; rates NULL: the schedule's. */
enum status bench_step(struct bench *bench, const struct update_rates *rates);

/* The time of each instruction, serialised. */
struct timed {
    const struct instruction *at;
    double milliseconds;         /* the shortest of the runs */
    double bytes;                /* that it must read and write */
};
/* rows: as many as the program has instructions. */
enum status bench_time_instructions(struct bench *bench, struct timed *rows);
