/* moments.h: settings of moments. */
#ifndef KERNELS_MOMENTS_H
#define KERNELS_MOMENTS_H

#include "kernels/op.h"

struct moments {
    int64_t a, b;   /* numbers in either set */
};

#endif
