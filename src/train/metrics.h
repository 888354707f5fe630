/* metrics.h: metrics.jsonl: one JSON object per line, flushed line by line, with no line repeated or lost. */
#pragma once

#include <stdint.h>

#include "base/directory.h"
#include "base/text.h"

#define METRICS_VERSION 1          /* of the format: "format" of every "start" */

struct metrics {
    char *path;              /* NULL: switched off; every call is then without effect */
    int file;                /* descriptor */
    struct text pending;     /* lines that could not be written so far */
};

/* Opens for appending, and cuts off a torn last line. */
enum status metrics_open(const struct directory *in, const char *name, struct metrics *metrics);
void metrics_close(struct metrics *metrics);       /* accepts a zeroed struct */

/* Writes the object (without newline) as one line. Where that is refused, as by a full disk, it is said, and
 * the line is kept to be written before the next one; FAILED when there are too many such. */
enum status metrics_line(struct metrics *metrics, const char *object);

/* So that what a checkpoint builds upon is on the disk before it is; FAILED where it cannot be. */
enum status metrics_sync(struct metrics *metrics);

/* Before a resumed run appends: drops a torn last line, and everything from the first line of a
 * step beyond `step` or of an epoch beyond `epoch` on, but for lines of "eval". A file that is not there is
 * fine, one of a newer version BAD_CHECKPOINT. */
enum status metrics_cut(const struct directory *in, const char *name, int64_t step, int64_t epoch);

/* Whether the last run that the file tells of has told its end. */
_Bool metrics_ended(const struct directory *in, const char *name);

/* Builders of objects: metrics_begin(&text, "step"), then members, then metrics_end. */
void metrics_begin(struct text *object, const char *event);
void metrics_integer(struct text *object, const char *key, int64_t value);
void metrics_number(struct text *object, const char *key, double value);
void metrics_numbers(struct text *object, const char *key, const double *values, int count);
void metrics_text(struct text *object, const char *key, const char *value);
void metrics_end(struct text *object);
