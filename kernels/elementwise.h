/* elementwise.h: code shared by ops of one input that treat every element alike. */
#ifndef KERNELS_ELEMENTWISE_H
#define KERNELS_ELEMENTWISE_H

#include "kernels/op.h"

/* The output has the first input's shape. */
bool elementwise_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                       struct reason *reason);
/* Forward over x, backward over d_y. */
bool elementwise_in_place(const void *settings, enum phase phase, int x_count, const struct shape *x);
unsigned elementwise_reads_x(const void *settings, enum phase phase);
unsigned elementwise_reads_y(const void *settings, enum phase phase);

/* Plain loops: y = function(x); d_x = d_y * slope(value), value being x or y as the op reads. */
typedef double elementwise_function(const void *settings, double value);
enum status elementwise_forward(const struct call *call, elementwise_function *function);
enum status elementwise_backward(const struct call *call, const struct tensor *value,
                                 elementwise_function *slope);

/* The same on threads, by blocks of fp32. */
typedef void elementwise_block(const void *settings, const float *x, float *y, int64_t count);
typedef void elementwise_slope_block(const void *settings, const float *value, const float *d_y, float *d_x,
                                     int64_t count);
enum status elementwise_forward_cpu(const struct call *call, elementwise_block *block);
enum status elementwise_backward_cpu(const struct call *call, const struct tensor *value,
                                     elementwise_slope_block *block);

#endif
