/* caching.h: where decoded images are cached for later epochs, in host memory or on the device
 * (loader.cache). */
#pragma once

#include "comm/comm.h"
#include "device/device.h"
#include "input/data.h"

struct caching_options {
    int cache;                        /* loader.cache, as conf/options.h numbers it */
    int64_t cache_limit;              /* loader.cache_limit */
    int64_t memory_limit;             /* memory.limit */
    enum device_kind kind;
    const struct data *data;
    struct comm *comm;                /* ranks of a host share the host cache; NULL: no ranks */
};

/* Why loader.cache=device is not possible; NULL: it is, or was not requested. */
const char *caching_refusal(const struct caching_options *options);

/* Device memory for cached images; 0: none. */
int64_t caching_device_bytes(const struct caching_options *options);

/* The limit of host memory for decoded images, from loader.cache_limit. */
size_t caching_host_limit(int64_t cache_limit);

/* If images are used more than once: opens the caches of the options' data, which loaders opened from now on
 * fill. `decoding`: the device decodes training images, which the host then does not cache. All ranks call it
 * together. */
enum status caching_open(const struct caching_options *options, bool decoding, struct data *data);
