/* run_export.h: what other tools' formats say of a run, from its folder's files. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/directory.h"
#include "conf/ini.h"

enum run_export_end { EXPORT_RUNNING, EXPORT_FINISHED, EXPORT_STOPPED, EXPORT_BROKEN };

struct run_export {
    char id[33];               /* a hash of its first record */
    const char *name;          /* run.name, or the folder's name */
    char *path;                /* the folder's, absolute */
    json_t *start;             /* the first record's strings and integers, without "event" */
    double begun, last;        /* seconds: since 1970 when the records' time was 0; the last one's time */
    char reason[16];           /* of the last record; "": the run has not ended */
    enum run_export_end end;
    struct ini config;         /* values are unquoted; empty if there is no config.ini */
};

/* BAD_DATA if there are no records, or they have no beginning. */
enum status run_export_open(const struct directory *folder, struct run_export *run);
void run_export_close(struct run_export *run);

/* Passes each number of a step or an epoch on, except those of epochs that repeat their last step's. */
enum status run_export_metrics(const struct directory *folder,
                               void (*take)(void *context, const json_t *line, const char *key,
                                            json_t *value),
                               void *context);
