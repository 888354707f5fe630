/* moments.h: settings of moments. */
#pragma once

#include "kernels/op.h"

struct moments {
    int64_t a, b;   /* size of each set */
};
