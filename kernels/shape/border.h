/* border.h: code of the padding ops: copies an image into the middle of a larger one filled with zeros, or
 * back. */
#pragma once

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

/* y from x, and d_x from d_y (zero where the stride skips), by copying pixels. */
enum status border_forward(const struct call *call, const struct border *border);
enum status border_backward(const struct call *call, const struct border *border);

/* CUDA code of both. */
enum status border_forward_cuda(const struct call *call, const struct border *border);
enum status border_backward_cuda(const struct call *call, const struct border *border);

/* Defines an op's reference and CUDA code, border_reference and border_cuda, from its function for the border
 * of a call. */
#define BORDER_CODE(name, on, border_of)                                                                 \
    static enum status name##_forward(const struct call *call)                                           \
    {                                                                                                    \
        struct border where = border_of(call);                                                           \
        return border_forward##on(call, &where);                                                         \
    }                                                                                                    \
    static enum status name##_backward(const struct call *call)                                          \
    {                                                                                                    \
        struct border where = border_of(call);                                                           \
        return border_backward##on(call, &where);                                                        \
    }                                                                                                    \
    static const struct op_code name = {.forward = name##_forward, .backward = name##_backward};
#ifdef HAVE_CUDA
#define BORDER_CODES(border_of)                                                                          \
    BORDER_CODE(border_reference, , border_of)                                                           \
    BORDER_CODE(border_cuda, _cuda, border_of)
#else
#define BORDER_CODES(border_of) BORDER_CODE(border_reference, , border_of)
#endif
