/* grn.h: settings of grn. */
#pragma once

#include "kernels/op.h"

struct grn {
    double eps;
};

extern const struct op_code grn_cpu;
