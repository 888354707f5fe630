/* slice.h: settings of slice. */
#pragma once

#include <stdint.h>

struct slice {
    int64_t first, channels;
};
