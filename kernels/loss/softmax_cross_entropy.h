/* softmax_cross_entropy.h: settings of softmax_cross_entropy, and access to labels and soft targets. */
#pragma once

#include "kernels/op.h"

struct softmax_cross_entropy {
    double label_smoothing;
};

/* The second input is labels, I32 [n, 1, 1, 1], or targets, F32 [n, 1, 1, classes + 1]: of each class,
 * followed by the index of the true class. The target of class c for image i, before smoothing; NaN for every
 * class when the label is out of range, so that an invalid label is noticed. */
double target_of(const struct call *call, int64_t i, int64_t c);

/* Checks logits and labels against each other; the output is one number per image. */
bool per_image_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                     struct reason *reason);
bool labels_no_gradient(int input);
