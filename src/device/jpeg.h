/* jpeg.h: JPEG decoding on a device, many images at a time. */
#pragma once

#include "base/decoder.h"
#include "device/device.h"

struct jpeg_bounds {
    int callers, images, h, w;         /* as in struct decoder */
};

struct jpeg_backend {
    /* Allocates all its memory now. False, with the reason: this device cannot decode. */
    bool (*open)(struct device *device, const struct jpeg_bounds *bounds, struct decoder *decoder,
                 struct reason *reason);
    void (*close)(struct decoder *decoder);            /* accepts a zeroed struct */
    /* The stored choice for `what` of this run or the one that it continues; otherwise, unless `facts` is
     * NULL, of an earlier run on such a device with the same facts (a line without '='). The caller frees it;
     * NULL: none. */
    char *(*chosen)(struct device *device, const char *what, const char *facts);
    /* Stores a choice in the run's checkpoints and, with facts, in a file for other runs. */
    void (*choose)(struct device *device, const char *what, const char *facts, const char *choice);
};
