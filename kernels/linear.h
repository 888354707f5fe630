/* linear.h: the linear layer's settings as its code on each device reads them. */
#pragma once

#include "op.h"
#include "weight.h"

struct linear_settings {
    int64_t units;
    struct weight_settings weight;
};

extern const struct op_code linear_reference, linear_cpu;
