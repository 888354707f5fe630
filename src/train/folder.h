/* folder.h: the run folder: one run's alone while it lasts, its log and its configuration in it. */
#ifndef TRAIN_FOLDER_H
#define TRAIN_FOLDER_H

#include <stdbool.h>
#include <stdio.h>

#include "conf/settings.h"

struct folder {
    char *path;           /* NULL: the run writes nothing */
    int lock;             /* descriptor of the locked file */
    FILE *log;            /* log.txt */
};

/* Makes the folder (and those above), takes it for this process (FAILED when another has it), and
 * begins log.txt. Without `resume` a folder that holds a checkpoint is refused, USAGE.
 * `path` NULL gives a folder that is none. */
enum status folder_open(const char *path, bool resume, struct folder *folder);
void folder_close(struct folder *folder);      /* accepts a zeroed struct */

/* Writes config.ini: everything as resolved; `file` is the configuration that paths count from. */
enum status folder_write_settings(const struct folder *folder, const struct settings *settings,
                                  const char *file);

/* Makes a folder and those above it. */
enum status folder_make(const char *path);

/* A path in the folder, for the caller to free. */
char *folder_file(const struct folder *folder, const char *name);

#endif
