/* slice.h: settings of slice and token_slice. */
#pragma once

#include <stdint.h>

struct slice {
    int64_t first, channels;
};

struct token_slice {
    int64_t first, count;
};
