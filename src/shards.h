/* shards.h: the names of the files that amptrain pack --shards writes instead of OUT.pack, and the removal of
 * an earlier set. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* OUT-0000.pack and so on; the caller frees it. */
char *shards_path(const char *output, int number);

/* Checks that surplus files with the names of a larger set are from an earlier set. BAD_DATA, naming it, if
 * one is not. */
enum status shards_check_leftovers(const char *output, int count);
/* Removes them, and reports it. */
enum status shards_remove_leftovers(const char *output, int count);
