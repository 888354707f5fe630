/* durable.h: files that are there whole or not at all, even when the power fails. */
#ifndef TRAIN_DURABLE_H
#define TRAIN_DURABLE_H

#include <stdbool.h>

#include "base/status.h"

/* Renames a finished, synced file over `path` and syncs the folder. */
enum status durable_rename(const char *from, const char *path);

/* A second name for a file, replacing what stood there: a hard link, or where the file system has
 * none, a synced copy. */
enum status durable_link(const char *from, const char *path);

/* Syncs the folder that `path` lies in, so that names in it survive. */
enum status durable_folder(const char *path);

/* DIR/NAME, for the caller to free. */
char *durable_path(const char *folder, const char *name);

#endif
