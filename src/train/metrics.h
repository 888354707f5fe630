/* metrics.h: metrics.jsonl: one JSON object a line, flushed line by line, nothing repeated or lost. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "base/text.h"

#define METRICS_VERSION 1          /* of the format: "format" of every "start" */

struct metrics {
    FILE *file;
    char *path;
};

/* Opens for appending. */
enum status metrics_open(const char *path, struct metrics *metrics);
void metrics_close(struct metrics *metrics);       /* accepts a zeroed struct */

/* Writes the object (without newline) as one line and flushes it. */
enum status metrics_line(struct metrics *metrics, const char *object);

/* So that what a checkpoint builds upon is on the disk before it is. */
enum status metrics_sync(struct metrics *metrics);

/* Before a resumed run appends: drops a torn last line, and everything from the first line of a
 * step beyond `step` or of an epoch beyond `epoch` on. A file that is not there is fine, one of a newer
 * version BAD_CHECKPOINT. */
enum status metrics_cut(const char *path, int64_t step, int64_t epoch);

/* Builders of objects: metrics_begin(&text, "step"), then members, then metrics_end. */
void metrics_begin(struct text *object, const char *event);
void metrics_integer(struct text *object, const char *key, int64_t value);
void metrics_number(struct text *object, const char *key, double value);
void metrics_text(struct text *object, const char *key, const char *value);
void metrics_end(struct text *object);

#endif
