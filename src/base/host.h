/* host.h: the memory and processors of the machine that this process may use. */
#pragma once

#include <stddef.h>

/* Bytes within the limits of the process's control groups and their parents: available now, and in total. A
 * group's page cache counts as available, as in MemAvailable. 0 if unknown, 1 if nothing is left. */
void host_memory(size_t *available, size_t *total);

/* Reads memory of a system whose root is the folder `root`: "/proc/meminfo" is ROOT/proc/meminfo. */
void host_memory_under(const char *root, size_t *available, size_t *total);

/* Processors in the process's affinity mask, or that are online where that is too long; at least 1. */
int host_processors(void);
