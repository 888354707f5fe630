/* optimizer_walk.h: a loop over a parameter on threads, with the same bits for any number of them. */
#ifndef KERNELS_OPTIMIZER_WALK_H
#define KERNELS_OPTIMIZER_WALK_H

#include "kernels/optimizer.h"

/* The update of a part of a parameter: its pointers are moved to the part and its count is the
 * part's. It adds what it likes to the sums. */
typedef void optimizer_part(const struct optimizer_param *part, const void *factors, double sums[2]);

/* Does it to all parts; sums, which may be NULL, are set to the totals, added up in a fixed order. */
void optimizer_walk(const struct optimizer_param *param, optimizer_part *function, const void *factors,
                    double sums[2]);

/* Sums of squares: of the gradient as it is, scaled, and of the masters. */
double optimizer_gradient_squares(const struct optimizer_param *param);
double optimizer_master_squares(const struct optimizer_param *param);

/* The weight decay that applies to the parameter. */
static inline double optimizer_decay(const struct optimizer_settings *settings,
                                     const struct optimizer_param *param)
{
    return param->decay ? settings->weight_decay : 0;
}

#endif
