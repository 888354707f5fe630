/* bench_feed.h: measures the parts of a training step's input pipeline, each alone, and finds the
 * bottleneck. */
#pragma once

#include "base/text.h"
#include "session/step.h"

/* Images a second. */
struct feed {
    double loader, compute, together;
    double copy;               /* to the device; 0: batches are used in place */
    double wait_fraction;      /* fraction of the combined time spent waiting for the loader */
};

/* The next batch, of epoch *epoch + 1 after the end of one. Waiting while the device is idle is added to
 * *wait_seconds; step may be NULL, and session then, too: there are none. */
enum status feed_next(const struct session *session, const struct step *step, struct loader *loader,
                      int64_t *epoch, struct batch **batch, double *wait_seconds);

/* The loader alone: `batches` batches, after those prefetched before were consumed. */
enum status feed_measure_loader(const struct session *session, struct loader *loader, int64_t *epoch,
                                int batches, double *images_per_s);

/* Copies alone, of one batch repeatedly, with preprocessing on the device; 0 if there are none. */
enum status feed_measure_copy(const struct session *session, const struct program *program,
                              struct loader *loader, int64_t *epoch, int batches, double *images_per_s);

/* "loader", "copy" or "compute": the slowest. */
const char *feed_limit(const struct feed *feed);
/* One sentence on it. */
void feed_explain(const struct feed *feed, struct text *out);
