/* shards.h: the names of the files that amptrain pack --shards writes instead of OUT.pack, and the removal of
 * an earlier set. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* OUT-0000.pack and so on; the caller frees it. */
char *shards_path(const char *output, int number);

/* Checks that files with these names are packed ones, of which so many will be replaced, and that surplus
 * ones with the names of a larger set are from an earlier set. BAD_DATA, naming it, if one is not. */
enum status shards_check_existing(const char *output, int count, int *replaced);
/* Removes surplus ones, and reports it. */
enum status shards_remove_leftovers(const char *output, int count);
