/* fingerprint.h: a 64-bit hash of a tensor's bytes, to compare the results of two executions of a step, or
 * the tensors of two ranks (src/exec/fingerprints.c). Each device has its own implementation. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct device;

struct fingerprint {
    /* Queues on `stream` (device_backend.stream): adds the hash of `bytes` bytes of device memory to *to,
     * which is pinned memory from device_host_allocate, initially 0. Hashes of different devices cannot be
     * compared. */
    enum status (*compute)(struct device *device, void *stream, const void *data, size_t bytes, uint64_t *to);
};

extern const struct fingerprint fingerprint_cpu, fingerprint_cuda;
