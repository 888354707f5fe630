/* atomic_file.h: files that are written completely or not at all, even when the power fails. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/directory.h"

/* Renames a finished, synced file over `name` and syncs the folder that this lies in. FAILED also if that is
 * lost (directory_check). */
enum status atomic_file_rename(const struct directory *in, const char *from, const char *name);

/* Gives a file a second name, replacing an existing file: a hard link or, if the file system has none, a
 * synced copy. One process at a time may do so in a folder. */
enum status atomic_file_link(const struct directory *in, const char *from, const char *name);

/* A file on its way to its name: until then it has one of its own, NAME.123456.tmp, and is locked, so that
 * several processes may write one file: the last to end it wins. Files left by processes that were killed are
 * removed when the same file is next written. */
struct atomic_file {
    const struct directory *in;        /* remains open until the end */
    char *name, *temporary;            /* in it */
    FILE *stream;                      /* of the temporary file, which may also be opened by its name */
};
enum status atomic_file_begin(const struct directory *in, const char *name, struct atomic_file *file);
/* Syncs and renames the file with `keep`, otherwise removes it. Reports an error of writing. */
enum status atomic_file_end(struct atomic_file *file, bool keep);

/* A file with this content. */
enum status atomic_file_write(const struct directory *in, const char *name, const void *data, size_t bytes);
