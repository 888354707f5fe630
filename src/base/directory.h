/* directory.h: a directory held open, so that its files can be accessed even after it was renamed. */
#pragma once

#include <stdio.h>
#include <sys/types.h>

#include "base/status.h"

struct directory {
    int file;                  /* descriptor */
    char *path;                /* as it was named, for messages */
    _Bool (*is_lost)(const void *owner);   /* another process has taken it; NULL: nobody can */
    const void *owner;
};

/* Creates a folder and its parents if they do not exist; `mode` is mkdir's. False, with the reason. */
_Bool directory_make(const char *path, mode_t mode, struct reason *reason);

/* True if there is a folder at this path. */
_Bool directory_is(const char *path);

/* Names are relative to the working directory, and may be absolute. */
extern const struct directory directory_working;

/* FAILED, with a message, where it cannot be opened. */
enum status directory_open(const char *path, struct directory *directory);
void directory_close(struct directory *directory);             /* accepts one without a path */

/* A file's name as messages show it, for the caller to free. */
char *directory_show(const struct directory *directory, const char *name);

/* Opens a regular file: `flags` are open's. Pipes, devices and directories are refused without waiting, and
 * for writing links, too: a symbolic one as the last part of the name, and a file with several names. All
 * files that are written are opened here, or get their name when they are complete (atomic_file.h). -1, with
 * the reason: "Permission denied", "not a regular file". */
int directory_file(const struct directory *directory, const char *name, int flags, struct reason *reason);

/* Opens a stdio stream: `mode` is "r", "r+", "w" or "a". NULL, with the reason. */
FILE *directory_stream(const struct directory *directory, const char *name, const char *mode,
                       struct reason *reason);

/* Opens a file that is read to its end, of at most `most` bytes: one that grew beyond reason, or is all
 * holes, would be read for hours. */
FILE *directory_stream_within(const struct directory *directory, const char *name, const char *mode,
                              int64_t most, struct reason *reason);

/* The bytes of a regular file, at most `most`, and a zero behind them, in new memory (free() it). False, with
 * the reason. */
_Bool directory_read(const struct directory *directory, const char *name, size_t most, char **bytes,
                     size_t *count, struct reason *reason);

/* Checks that the directory is not lost, before a file in it is replaced: FAILED, with a message. */
enum status directory_check(const struct directory *directory, const char *name);

/* Reports that a file cannot be written: FAILED. */
enum status directory_refuse(const struct directory *directory, const char *name, const char *why);

/* True if the name exists, even as a dangling link. */
_Bool directory_has(const struct directory *directory, const char *name);

/* Removes a file, if there is one. */
void directory_remove(const struct directory *directory, const char *name);
