/* lrn.h: settings of lrn. */
#ifndef KERNELS_LRN_H
#define KERNELS_LRN_H

#include <stdint.h>

struct lrn {
    int64_t size;
    double alpha, beta, k;
};

#endif
