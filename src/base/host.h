/* host.h: the memory of the machine, as far as this process may use it. */
#ifndef BASE_HOST_H
#define BASE_HOST_H

#include <stddef.h>

/* Bytes, within the limits of the process's control groups: what could be had now, and all there is. 0 where
 * the system does not say. */
void host_memory(size_t *available, size_t *total);

#endif
