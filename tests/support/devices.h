/* devices.h: a check on the first device of every kind that this build knows and this machine has. */
#pragma once

#include "device/device.h"

/* `can`: which kinds; NULL: all. cmocka.h comes before. */
static inline void on_devices(bool (*can)(const struct device_backend *backend),
                              void (*check)(struct device *device))
{
    for (const struct device_backend *const *backend = device_backends; *backend; backend++) {
        struct reason reason;
        struct device *device;
        if ((can && !can(*backend)) || (*backend)->count(&reason) == 0) continue;
        assert_int_equal((*backend)->open(0, 1, &device), OK);
        check(device);
        device_close(device);
    }
}
