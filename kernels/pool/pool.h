/* pool.h: the inputs that each output of a pooling op covers along one axis, with torch's window
 * positions. */
#pragma once

#include "kernels/op.h"

/* Sliding windows, or adaptive bins: then bin i is [floor(i * in / out), ceil((i + 1) * in / out)). */
struct pool_axis {
    int64_t in, out;
    bool adaptive;
    int64_t kernel, stride, pad, dilation;
};

/* Positions first, first + step, ... < end of the input; always within it. `skipped` positions of the window
 * are before `first`, in the padding. */
struct pool_span {
    int64_t first, end, step;
    int64_t skipped;
};
struct pool_span pool_inputs(const struct pool_axis *axis, int64_t output);

/* Outputs first .. end - 1 may cover this input. With dilation, only those do for which pool_position, the
 * input's index in the output's window, is not negative. */
struct pool_span pool_outputs(const struct pool_axis *axis, int64_t input);
static inline int64_t pool_position(const struct pool_axis *axis, int64_t output, int64_t input)
{
    if (axis->adaptive) return input - output * axis->in / axis->out;
    int64_t distance = input + axis->pad - output * axis->stride;
    if (axis->dilation == 1) return distance;
    return distance % axis->dilation == 0 ? distance / axis->dilation : -1;
}

/* Settings of maxpool and avgpool; stride 0: the kernel; dilation 0: 1. */
struct pool {
    int64_t kernel, stride, pad, dilation;
    bool ceil_mode, count_include_pad;
};

/* Rows of their field tables. */
#define POOL_FIELDS(kernel_max)                                                                          \
    {.name = "kernel", .type = FIELD_INT, .offset = offsetof(struct pool, kernel),                       \
     .min = 1, .max = kernel_max, .help = "Height and width of the window."},                            \
    {.name = "stride", .type = FIELD_INT, .offset = offsetof(struct pool, stride), .initial = "kernel",  \
     .min = 0, .max = 4096, .word = "kernel", .word_value = 0,                                           \
     .help = "Stride of the window; 0 or kernel: the size of the window."},                              \
    {.name = "pad", .type = FIELD_INT, .offset = offsetof(struct pool, pad), .initial = "0",             \
     .min = 0, .max = 2048, .help = "Padding on every side, at most half of the kernel."}
#define POOL_CEIL_MODE                                                                                   \
    {.name = "ceil_mode", .type = FIELD_BOOL, .offset = offsetof(struct pool, ceil_mode),                \
     .initial = "no", .help = "Round the output size up, so that partial windows count."}

/* Settings of the adaptive ops: the number of bins in height and width. */
struct pool_bins {
    int64_t size;
};
extern const struct field pool_bins_fields[];
extern const struct op_example pool_bins_examples[];

/* The output's shape, as struct op has it, by struct pool or struct pool_bins. */
bool pool_sliding_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                        struct reason *reason);
bool pool_bins_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                     struct reason *reason);

/* Both axes of an op, and how an average divides. */
struct pool_plane {
    struct pool_axis h, w;
    bool count_padding;
    bool relu;                   /* behind maxima */
};
double pool_divisor(const struct pool_plane *plane, int64_t h, int64_t w);

/* The plane of a call, by its op's settings: struct pool, struct pool_bins, or none for a single bin. */
struct pool_plane pool_sliding(const struct call *call);
struct pool_plane pool_bins(const struct call *call);
struct pool_plane pool_global(const struct call *call);
struct pool_plane pool_relu(const struct call *call);     /* sliding, with a relu behind it */
/* A plane of windows of 2x2, two apart; `pooled` tells whether those at odd edges, which lack inputs,
 * count. */
struct pool_plane pool_halves(struct shape x, struct shape pooled);
bool pool_is_halves(const struct pool *pool);

/* The tensors that a maximum's backward reads. */
unsigned pool_reads_saved(const void *settings, enum phase phase);

/* Averages: plain loops, by blocks of channels on threads, and on CUDA. */
enum status pool_average(const struct call *call, const struct pool_plane *plane);
enum status pool_average_backward(const struct call *call, const struct pool_plane *plane);
enum status pool_average_cpu(const struct call *call, const struct pool_plane *plane);
enum status pool_average_backward_cpu(const struct call *call, const struct pool_plane *plane);
enum status pool_average_cuda(const struct call *call, const struct pool_plane *plane);
enum status pool_average_backward_cuda(const struct call *call, const struct pool_plane *plane);

/* Maxima: the first of equal values, and NaN above all others, as in torch. saved[0] is the index of each
 * maximum in its window, one byte except for bins; with relu, POOL_NOWHERE for maxima that are not
 * positive. */
#define POOL_NOWHERE 255
#define POOL_RELU_KERNEL 15      /* the largest kernel of which no input has that index */
int pool_maximum_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                       struct op_saved out[OP_MAX_SAVED]);
enum status pool_maximum(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_backward(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_cpu(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_backward_cpu(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_cuda(const struct call *call, const struct pool_plane *plane);
enum status pool_maximum_backward_cuda(const struct call *call, const struct pool_plane *plane);
size_t pool_maximum_workspace_cuda(const struct call *call);

/* Defines an op's reference, CPU and CUDA code, pool_reference, pool_cpu and pool_cuda; the last has further
 * members. kind: average or maximum; plane: one of the functions above. */
#define POOL_CODE(name, kind, on, plane, ...)                                                            \
    static enum status name##_forward(const struct call *call)                                           \
    {                                                                                                    \
        struct pool_plane where = plane(call);                                                           \
        return pool_##kind##on(call, &where);                                                            \
    }                                                                                                    \
    static enum status name##_backward(const struct call *call)                                          \
    {                                                                                                    \
        struct pool_plane where = plane(call);                                                           \
        return pool_##kind##_backward##on(call, &where);                                                 \
    }                                                                                                    \
    static const struct op_code name = {.forward = name##_forward, .backward = name##_backward, __VA_ARGS__};
#ifdef HAVE_CUDA
#define POOL_CODES(kind, plane, ...)                                                                     \
    POOL_CODE(pool_reference, kind, , plane)                                                             \
    POOL_CODE(pool_cpu, kind, _cpu, plane)                                                               \
    POOL_CODE(pool_cuda, kind, _cuda, plane, __VA_ARGS__)
#else
#define POOL_CODES(kind, plane, ...)                                                                     \
    POOL_CODE(pool_reference, kind, , plane)                                                             \
    POOL_CODE(pool_cpu, kind, _cpu, plane)
#endif

/* The index of an input in a window is its row in it times this plus its column. */
static inline int64_t pool_row_length(const struct pool_plane *plane)
{
    return plane->w.adaptive ? plane->w.in : plane->w.kernel;
}

/* The index of input h, w in the window of output i, j; -1 if it is not in it. */
static inline int64_t pool_number(const struct pool_plane *plane, int64_t i, int64_t j, int64_t h, int64_t w)
{
    int64_t row = pool_position(&plane->h, i, h), column = pool_position(&plane->w, j, w);
    return row < 0 || column < 0 ? -1 : row * pool_row_length(plane) + column;
}
