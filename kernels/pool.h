/* pool.h: which inputs each output of a pooling op covers, along one axis: windows as torch lays them. */
#ifndef KERNELS_POOL_H
#define KERNELS_POOL_H

#include "kernels/op.h"

/* Sliding windows, or adaptive bins: then bin i is [floor(i * in / out), ceil((i + 1) * in / out)). */
struct pool_axis {
    int64_t in, out;
    bool adaptive;
    int64_t kernel, stride, pad, dilation;
};

/* Positions first, first + step, ... < end of the input; always within it. `skipped` of the
 * window's positions lie before `first`, in the padding. */
struct pool_span {
    int64_t first, end, step;
    int64_t skipped;
};
struct pool_span pool_inputs(const struct pool_axis *axis, int64_t output);

/* Outputs first .. end - 1 are those that may cover this input. With dilation only those do for
 * which pool_position is not negative: the input's number in the output's window. */
struct pool_span pool_outputs(const struct pool_axis *axis, int64_t input);
static inline int64_t pool_position(const struct pool_axis *axis, int64_t output, int64_t input)
{
    if (axis->adaptive) return input - output * axis->in / axis->out;
    int64_t distance = input + axis->pad - output * axis->stride;
    if (axis->dilation == 1) return distance;
    return distance % axis->dilation == 0 ? distance / axis->dilation : -1;
}

/* Positions of a window that count in an average that counts the padding, too: all that lie in the
 * input padded on both sides. */
int64_t pool_padded_count(const struct pool_axis *axis, int64_t output);

/* Settings of maxpool and avgpool; stride 0: the kernel; dilation 0: 1. */
struct pool {
    int64_t kernel, stride, pad, dilation;
    bool ceil_mode, count_include_pad;
};
struct pool_axis pool_axis_sliding(const struct pool *pool, int64_t in);
struct pool_axis pool_axis_adaptive(int64_t in, int64_t out);
bool pool_shape(const struct pool *pool, struct shape x, struct shape *y, struct reason *reason);

/* Both axes of an op, and how an average divides. */
struct pool_plane {
    struct pool_axis h, w;
    bool count_padding;
};
double pool_divisor(const struct pool_plane *plane, int64_t h, int64_t w);

/* The planes of each op's calls. */
struct pool_plane maxpool_plane(const struct call *call);
struct pool_plane avgpool_plane(const struct call *call);
struct pool_plane globalavgpool_plane(const struct call *call);
struct pool_plane adaptive_avgpool_plane(const struct call *call);
struct pool_plane adaptive_maxpool_plane(const struct call *call);

/* Averages: plain loops, by blocks of channels on threads, and on CUDA. */
enum status pool_average(const struct call *call, const struct pool_plane *plane);
enum status pool_average_backward(const struct call *call, const struct pool_plane *plane);
enum status pool_average_cpu(const struct call *call, const struct pool_plane *plane);
enum status pool_average_backward_cpu(const struct call *call, const struct pool_plane *plane);
enum status pool_average_cuda(const struct call *call, const struct pool_plane *plane);
enum status pool_average_backward_cuda(const struct call *call, const struct pool_plane *plane);

/* Maxima: the first of equals, and a NaN beats all, as in torch. saved[0] is where in its window
 * each maximum lies. */
enum status pool_maximum(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_backward(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_cpu(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_backward_cpu(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_cuda(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_backward_cuda(const struct call *call, const struct pool_plane *plane);

/* An op's plain code, `op`_reference, and that for threads, `op`_cpu; kind: average or maximum. */
#define POOL_CODES(op, kind)                                                                             \
    static enum status op##_forward(const struct call *call)                                             \
    {                                                                                                    \
        struct pool_plane where = op##_plane(call);                                                      \
        return pool_##kind(call, &where);                                                                \
    }                                                                                                    \
    static enum status op##_backward(const struct call *call)                                            \
    {                                                                                                    \
        struct pool_plane where = op##_plane(call);                                                      \
        return pool_##kind##_backward(call, &where);                                                     \
    }                                                                                                    \
    static enum status op##_forward_cpu(const struct call *call)                                         \
    {                                                                                                    \
        struct pool_plane where = op##_plane(call);                                                      \
        return pool_##kind##_cpu(call, &where);                                                          \
    }                                                                                                    \
    static enum status op##_backward_cpu(const struct call *call)                                        \
    {                                                                                                    \
        struct pool_plane where = op##_plane(call);                                                      \
        return pool_##kind##_backward_cpu(call, &where);                                                 \
    }                                                                                                    \
    static const struct op_code op##_reference = {.forward = op##_forward, .backward = op##_backward};   \
    static const struct op_code op##_cpu = {.forward = op##_forward_cpu, .backward = op##_backward_cpu}

/* An input's number, from 0, in a window: its row in it times this, and its column. */
static inline int64_t pool_row_length(const struct pool_plane *plane)
{
    return plane->w.adaptive ? plane->w.in : plane->w.kernel;
}

/* The number of input h, w in the window of output i, j; -1 when it is not in it. */
static inline int64_t pool_number(const struct pool_plane *plane, int64_t i, int64_t j, int64_t h, int64_t w)
{
    int64_t row = pool_position(&plane->h, i, h), column = pool_position(&plane->w, j, w);
    return row < 0 || column < 0 ? -1 : row * pool_row_length(plane) + column;
}

#endif
