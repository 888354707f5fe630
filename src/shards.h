/* shards.h: the names of the files that amptrain pack --shards writes instead of OUT.pack, and the removal of
 * an earlier set. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* OUT-0000.pack and so on; the caller frees it. */
char *shards_path(const char *output, int number);

/* Files of the same name that a set of `count` would leave behind, for whoever reads the folder to meet:
 * whether each is of an earlier set. BAD_DATA: one is not, which is named. */
enum status shards_check_leftovers(const char *output, int count);
/* Removes them, and says so. */
enum status shards_remove_leftovers(const char *output, int count);
