/* layernorm.h: settings of layernorm, and where its saved tensors are. */
#pragma once

#include "kernels/op.h"

struct layernorm {
    double eps;
};

/* Statistics of each pixel; forward saves them in training. */
enum { LAYERNORM_MEAN, LAYERNORM_INVSTD, LAYERNORM_SAVED };

extern const struct op_code layernorm_cpu;
