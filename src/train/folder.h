/* folder.h: the run folder, locked by one run at a time, with its log and configuration. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/directory.h"
#include "base/text.h"
#include "conf/settings.h"

struct folder {
    struct directory at;  /* path NULL: the run writes nothing. Remains valid if the folder is renamed */
    atomic_int lock;      /* descriptor of the locked file; threads that write checkpoints look at it */
    FILE *log;            /* log.txt; NULL: not begun */
    struct text early;    /* messages until then */
};

/* A writer of files in a folder. */
enum folder_writer {
    FOLDER_RUN = 1, FOLDER_EVAL = 2, FOLDER_PLAN = 4, FOLDER_PROFILE = 8, FOLDER_REPORT = 16,
};

/* Checks that what this writer would write is not there, or was written by amptrain: USAGE otherwise. */
enum status folder_check_files(const struct directory *folder, enum folder_writer writer);

/* Creates the folder (and its parents), and locks it for this process (FAILED if another has it). USAGE: it
 * holds other files than a run's in the place of those; or without `resume` it contains a checkpoint. `path`
 * NULL gives a dummy. `folder` must not move until it is closed. */
enum status folder_open(const char *path, bool resume, struct folder *folder);
/* True if a process has locked it. */
bool folder_is_taken(const char *path);
void folder_close(struct folder *folder);      /* accepts a zeroed struct */

/* Starts log.txt, with the messages since the folder was opened. */
enum status folder_log(struct folder *folder);

/* Checks that the folder still belongs to this process: FAILED if it was removed, or if another process has
 * locked it after the lock file was removed. */
enum status folder_check(struct folder *folder);

/* Opens a folder, created if necessary, to add an evaluation to its records: FAILED if a run is in progress
 * in it, USAGE as above. To be closed by folder_close. */
enum status folder_visit(const char *path, struct folder *folder);

/* Writes config.ini: everything as resolved; `file` is the configuration to which paths are relative. */
enum status folder_write_settings(const struct folder *folder, const struct settings *settings,
                                  const char *file);

/* Makes a folder and those above it. */
enum status folder_make(const char *path);

/* Makes it, and checks what this writer would write there: USAGE, FAILED. */
enum status folder_prepare(const char *path, enum folder_writer writer);
