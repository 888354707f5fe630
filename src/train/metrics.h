/* metrics.h: metrics.jsonl: one JSON object per line, flushed line by line, with no line repeated or lost. */
#pragma once

#include <stdint.h>

#include "base/directory.h"
#include "base/text.h"

#define METRICS_VERSION 1          /* of the format: "format" of every "start" */

struct metrics {
    char *path;              /* NULL: switched off; every call is then without effect */
    int file;                /* descriptor */
    struct text pending;     /* lines that could not be written yet */
};

/* Opens for appending, and removes an incomplete last line. */
enum status metrics_open(const struct directory *in, const char *name, struct metrics *metrics);
void metrics_close(struct metrics *metrics);       /* accepts a zeroed struct */

/* Writes the object (without newline) as one line. If that fails, for example on a full disk, it is reported,
 * and the line is written before the next one; FAILED if there are too many of these. */
enum status metrics_line(struct metrics *metrics, const char *object);

/* Syncs the file, so that it is on disk before the checkpoint that refers to it; FAILED if that is not
 * possible. */
enum status metrics_sync(struct metrics *metrics);

/* Before a resumed run appends: removes an incomplete last line, and everything from the first line of a step
 * beyond `step` or of an epoch beyond `epoch` on, except lines of "eval". A missing file is fine, one of a
 * newer version is BAD_CHECKPOINT. */
enum status metrics_cut(const struct directory *in, const char *name, int64_t step, int64_t epoch);

/* True if the last run in the file has a line for its end, which is not that of failing. */
#define END_NOT_FINITE "not_finite"
_Bool metrics_ended(const struct directory *in, const char *name);
