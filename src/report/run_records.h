/* run_records.h: reads the files that a run has written to its folder: metrics and others. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/directory.h"
#include "base/text.h"
#include "task/task.h"

/* Lines of one event as columns of numbers, NAN if a line has none. */
struct records_table {
    const char *const *keys;         /* ended by NULL */
    double **columns;                /* [keys][count] */
    int64_t count;
};

struct run_records {
    const struct directory *folder;
    json_t *start, *end;             /* the last line of each event; NULL: none */
    int starts;                      /* lines of "start": more than one if the run was resumed */
    struct records_table steps, epochs;
    struct text config;              /* config.ini; no data: none */
};

/* Calls `take` with each line of the metrics; incomplete ones are skipped. BAD_DATA: there are none. */
enum status records_each(const struct directory *folder, void (*take)(void *context, json_t *line),
                         void *context);

/* BAD_DATA if the folder has no metrics. Incomplete lines are skipped. The folder must outlive this. */
enum status run_records_open(const struct directory *folder, struct run_records *records);
void run_records_close(struct run_records *records);     /* accepts a zeroed struct */

/* A column, NULL where there is no line; its last number, NAN: none; the sum of its numbers; a number of the
 * last start, NAN: none. */
const double *records_column(const struct records_table *table, const char *key);
double records_last(const struct records_table *table, const char *key);
double records_sum(const struct records_table *table, const char *key);
double records_start_number(const struct run_records *records, const char *key);
const char *records_start_text(const struct run_records *records, const char *key);   /* "" when missing */

/* The device memory that the run took; "" when missing. */
const char *records_memory(const struct run_records *records, char text[TEXT_BYTES]);

/* Steps of the run, by the line that knows of most; NAN: none does. */
double records_steps(const struct run_records *records);

/* The metric of checkpoint.best, NULL for the loss, and its key in lines of epochs. Older versions do not say
 * it: the first one of the run's task. */
const struct task_metric *records_metric(const struct run_records *records, const char **key);

/* The epoch (row) of the best checkpoint by that metric; -1: no validation was finite. */
int64_t records_best_epoch(const struct run_records *records);

/* Larger files of a folder are ignored. */
#define REPORT_FILE_MAX ((size_t)16 << 20)

/* A file of JSON; NULL: there is none. */
json_t *records_json(const struct run_records *records, const char *name);

/* A file's text of up to `most` bytes; false: there is none, or it is too long. */
bool records_read(const struct directory *folder, const char *name, size_t most, struct text *text);
