/* border.h: code of the padding ops: copies an image into the middle of a larger one of zeros, or back. */
#ifndef KERNELS_BORDER_H
#define KERNELS_BORDER_H

#include "kernels/op.h"

/* Pixel h, w, channel c of the small image is h * stride etc. of x; in y it is at top + h, left + w,
 * front + c. */
struct border {
    int64_t stride;
    int64_t top, left, front;
};

/* The border that each op's settings ask for. */
struct border pad_border(const struct call *call);
struct border channel_pad_border(const struct call *call);

/* Plain loops: y from x, and d_x from d_y (zero where the stride skips). */
enum status border_forward(const struct call *call, const struct border *border);
enum status border_backward(const struct call *call, const struct border *border);

/* The same by copying pixels, on threads. */
enum status border_forward_cpu(const struct call *call, const struct border *border);
enum status border_backward_cpu(const struct call *call, const struct border *border);

/* The same on CUDA. */
enum status border_forward_cuda(const struct call *call, const struct border *border);
enum status border_backward_cuda(const struct call *call, const struct border *border);

/* An op's plain code, `op`_reference, and that for threads, `op`_cpu, by its border. */
#define BORDER_CODES(op)                                                                                 \
    static enum status op##_forward(const struct call *call)                                             \
    {                                                                                                    \
        struct border where = op##_border(call);                                                         \
        return border_forward(call, &where);                                                             \
    }                                                                                                    \
    static enum status op##_backward(const struct call *call)                                            \
    {                                                                                                    \
        struct border where = op##_border(call);                                                         \
        return border_backward(call, &where);                                                            \
    }                                                                                                    \
    static enum status op##_forward_cpu(const struct call *call)                                         \
    {                                                                                                    \
        struct border where = op##_border(call);                                                         \
        return border_forward_cpu(call, &where);                                                         \
    }                                                                                                    \
    static enum status op##_backward_cpu(const struct call *call)                                        \
    {                                                                                                    \
        struct border where = op##_border(call);                                                         \
        return border_backward_cpu(call, &where);                                                        \
    }                                                                                                    \
    static const struct op_code op##_reference = {.forward = op##_forward, .backward = op##_backward};   \
    static const struct op_code op##_cpu = {.forward = op##_forward_cpu, .backward = op##_backward_cpu}

#endif
