/* softmax_cross_entropy.h: settings of softmax_cross_entropy. */
#pragma once

#include "kernels/op.h"

struct softmax_cross_entropy {
    double label_smoothing;
};
