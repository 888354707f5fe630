/* bench.h: measures a training step: alone, with its data, and by instruction. */
#pragma once

#include "bench_feed.h"
#include "cmd.h"
#include "session/step_queue.h"

/* A measurement under way. */
struct bench {
    struct session session;
    struct store store;
    struct step step;
    struct loader *loader;       /* NULL: the made-up batch, again and again */
    struct exec_batch batch;     /* that one */
    void *images;
    void *labels;
    int64_t epoch;               /* of the loader; -1: none yet */
    double wait_seconds;         /* for the loader, of the measured steps */
    struct feed feed;            /* with a loader */
    double *milliseconds;        /* of the measured steps */
    int steps;
    double start_seconds, loss, first_loss;
    bool still;                  /* learning rates are 0: no number of steps makes the loss diverge, after
                                  * which updates, skipped, would have nothing to do */
    struct step_queue queue;
    struct time_spans *spans;         /* what the host does in steps; NULL: not kept */
};

/* With the configured data where `real`, otherwise with a made-up batch. The caller has set `steps` and
 * zeroed the rest; what was opened is its to close, also after a failure. */
enum status bench_open(struct cmd *cmd, struct comm *comm, bool real, struct bench *bench);
void bench_close(struct bench *bench);

/* Device memory that it takes. */
struct step_bytes bench_bytes(const struct bench *bench);

/* Steps follow each other as in training; one's time is from the end of the one before it to its own. */
enum status bench_measure(struct bench *bench, int warmup);

/* Measures the loader alone, the step alone, and last the combination, whose times are kept. */
enum status bench_measure_feed(struct bench *bench, int warmup);

/* The time that this share of the measured steps does not exceed, which sorts them. */
double bench_percentile(const struct bench *bench, double share);

/* One step, started and collected; rates NULL: the schedule's. */
enum status bench_step(struct bench *bench, const struct update_rates *rates);

/* Of each instruction, run to its end before the next one. */
struct timed {
    const struct instruction *at;
    double milliseconds;         /* the shortest of the runs */
    double bytes;                /* that it must read and write */
};
/* rows: as many as the program has instructions. */
enum status bench_time_instructions(struct bench *bench, struct timed *rows);
