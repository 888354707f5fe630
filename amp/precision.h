/* precision.h: the number types that a run computes in, as rows of one table. */
#pragma once

#include <stdbool.h>

#include "base/dtype.h"

enum precision { PRECISION_FP32, PRECISION_TF32, PRECISION_FP16, PRECISION_BF16, PRECISION_COUNT };

struct precision_row {
    const char *name;
    enum dtype storage;        /* of activations and of the weights that LOW ops read */
    bool low;                  /* storage is not fp32: weights need a copy */
    bool tf32;                 /* matrix products may round inputs to tf32 (CUDA); elsewhere as fp32 */
    bool scale_by_default;     /* dynamic loss scaling by default */
    const char *help;
};
extern const struct precision_row precision_table[PRECISION_COUNT];
