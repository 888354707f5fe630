/* folder.h: the run folder, locked by one run at a time, with its log and configuration. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/directory.h"
#include "base/text.h"
#include "conf/settings.h"

struct folder {
    struct directory at;  /* path NULL: the run writes nothing. It stays the same folder if it is moved */
    int lock;             /* descriptor of the locked file */
    FILE *log;            /* log.txt; NULL: not begun */
    struct text early;    /* what was said until then */
};

/* Makes the folder (and those above), and takes it for this process (FAILED when another has it). Without
 * `resume` a folder that holds a checkpoint is refused, USAGE. `path` NULL gives a folder that is none.
 * `folder` stays where it is until it is closed. */
enum status folder_open(const char *path, bool resume, struct folder *folder);
void folder_close(struct folder *folder);      /* accepts a zeroed struct */

/* Begins log.txt, with what has been said since the folder was opened. */
enum status folder_log(struct folder *folder);

/* That the folder is still this process's: FAILED where it was removed, or where another process has taken it
 * because the lock was. */
enum status folder_check(struct folder *folder);

/* Opens a folder, made where there is none, to add to its records while no run is in it: FAILED where one is.
 * To be closed by folder_close. */
enum status folder_visit(const char *path, struct folder *folder);

/* Writes config.ini: everything as resolved; `file` is the configuration that paths count from. */
enum status folder_write_settings(const struct folder *folder, const struct settings *settings,
                                  const char *file);

/* Makes a folder and those above it. */
enum status folder_make(const char *path);
