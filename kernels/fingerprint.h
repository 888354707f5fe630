/* fingerprint.h: a 64-bit hash of a tensor's bytes, to compare the results of two executions of a step, or
 * the tensors of two ranks (src/exec/fingerprints.c). Each device has its own implementation. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct device;

struct fingerprint {
    /* Queues on `stream` (device_backend.stream) that the number of `bytes` bytes of device memory is added
     * to *to, which is pinned memory from device_host_allocate, and 0 before. Numbers of two devices do not
     * compare. */
    enum status (*compute)(struct device *device, void *stream, const void *data, size_t bytes, uint64_t *to);
};

extern const struct fingerprint fingerprint_cpu, fingerprint_cuda;
