/* lrn.h: settings of lrn. */
#pragma once

#include <stdint.h>

struct lrn {
    int64_t size;
    double alpha, beta, k;
};
