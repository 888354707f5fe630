/* join.cuh: the gradient of an activation's input, from one or two gradients of its output, and its sums by
 * channel, in one sweep. */
#pragma once

#include "kernels/support/cuda.cuh"

/* dz = (d_y + d_y_more) * activation'(z). The activation is a clamp between 0 and `top`: which side z was on
 * follows from the mask, else from y. */
struct join {
    struct tensor d_y;
    const void *d_y_more, *y;            /* d_y_more may be NULL; y, if there is a mask or no activation */
    const uint8_t *mask;                 /* of relu in 16 bits; may be NULL */
    float top;
    void *dz;                            /* may be d_y, or NULL */
    float *sums;                         /* [channels] of dz */
};

/* Bytes for `parts`. */
size_t join_workspace(const struct tensor *d_y);
enum status join_run(const struct call *call, const struct join *join, float *parts);
