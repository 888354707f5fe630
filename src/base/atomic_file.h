/* atomic_file.h: files that are written completely or not at all, even when the power fails. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/directory.h"

/* Renames a finished, synced file over `name` and syncs the folder that this lies in. */
enum status atomic_file_rename(const struct directory *in, const char *from, const char *name);

/* Gives a file a second name, replacing an existing file: a hard link or, if the file system has none, a
 * synced copy. */
enum status atomic_file_link(const struct directory *in, const char *from, const char *name);

/* The same with its content: FILE.tmp, synced and renamed. */
enum status atomic_file_write(const struct directory *in, const char *name, const void *data, size_t bytes);

/* The same for a stream to FILE.tmp, which `end` closes: with `keep` it becomes the file, otherwise it is
 * removed. An error of writing is reported by `end`. */
enum status atomic_file_begin(const struct directory *in, const char *name, FILE **file);
enum status atomic_file_end(const struct directory *in, const char *name, FILE *file, bool keep);

/* DIR/NAME, for the caller to free. */
char *atomic_file_path(const char *folder, const char *name);
