/* host.h: the memory and processors of the machine that this process may use. */
#pragma once

#include <stddef.h>

/* Bytes, within the limits of the process's control groups and of those above them: what could be had now,
 * and all there is. A group's files that lie in memory to be read again count as free, as MemAvailable counts
 * them. 0 where the system does not say, 1 where nothing is left. */
void host_memory(size_t *available, size_t *total);

/* The same by the files of a system whose root is the folder `root`: "/proc/meminfo" is ROOT/proc/meminfo. */
void host_memory_under(const char *root, size_t *available, size_t *total);

/* Processors in the process's affinity mask, at least 1. */
int host_processors(void);
