/* jpeg.h: JPEG decoding on a device, many images at a time. */
#pragma once

#include "base/decoder.h"
#include "device/device.h"

struct jpeg_bounds {
    int callers, images, h, w;         /* as in struct decoder */
};

struct jpeg_backend {
    /* Takes all its memory now. False, and why: this device does not decode. */
    bool (*open)(struct device *device, const struct jpeg_bounds *bounds, struct decoder *decoder,
                 struct reason *reason);
    void (*close)(struct decoder *decoder);            /* accepts a zeroed struct */
    /* The choice for `what` in this run, or in the one that it goes on from; else, unless `facts` is
     * NULL, in an earlier one on such a device, where they were the same (a line without '='). The caller
     * frees it; NULL: nothing was. */
    char *(*chosen)(struct device *device, const char *what, const char *facts);
    /* A choice, which the run's checkpoints keep, and a file for other runs if there are facts that it holds
     * for. */
    void (*choose)(struct device *device, const char *what, const char *facts, const char *choice);
};
