#include "kernels/exchange/fingerprint.h"

#include "base/crc32c.h"

static enum status fingerprint_compute(struct device *device, void *stream, const void *data, size_t bytes,
                                       uint64_t *to)
{
    *to += crc32c(0, data, bytes);
    return OK;
}

const struct fingerprint fingerprint_cpu = {.compute = fingerprint_compute};
