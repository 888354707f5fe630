/* loss_targets.h: what losses and ranks read beside the network's output: labels or targets. */
#pragma once

#include "base/anywhere.h"
#include "kernels/op.h"

/* The second input is labels, I32 [n, 1, 1, 1], or targets, F32 [n, 1, 1, outputs + 1]: of each output,
 * followed by the index of the true class; or F32 [n, 1, 1, 2 * outputs + 1], followed by the weight of
 * each. */
ANYWHERE int64_t target_row(int64_t outputs, bool weighted)
{
    return outputs + 1 + (weighted ? outputs : 0);
}

/* The target of output c for image i: (1 - smoothing) t + smoothing / outputs, where t is that of targets, or
 * one at the label and zero elsewhere; NaN when the label is out of range, so that an invalid one is
 * noticed. */
double target_of(const struct call *call, int64_t i, int64_t c, double smoothing);
double target_weight(const struct call *call, int64_t i, int64_t c);

/* The true class of image i; -1: it is out of range. */
int64_t target_class(const struct call *call, int64_t i);

/* Checks outputs and targets against each other; weights are accepted if they count. y is one number per
 * image. */
bool targets_shape(const struct shape *x, bool weighted, struct shape *y, struct reason *reason);
bool targets_no_gradient(int input);
/* F32; in double precision, in which tests compute gradients, F64. */
enum dtype targets_loss_dtype(const void *settings, enum dtype input);
