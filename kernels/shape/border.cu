/* border.cu: the copies of the padding ops: blocks iterate over the rows of the destination. */
#include "kernels/support/chunk.cuh"

extern "C" {
#include "kernels/shape/border.h"
}

#define THREADS 256

/* Maps line h of the output to the line that is read: (h + top) * multiply or, to invert a stride,
 * h / divide + top if h is a multiple of divide. Columns likewise; channels, counted in words, are shifted
 * by `front`. */
struct view {
    int64_t rows;
    int h, w, from_h, from_w;          /* of an image written and read */
    int multiply, divide, top, left;
    int64_t words, from_words, front;
};

/* The line or column that is read; -1: none. */
__device__ static inline int source(int at, int multiply, int divide, int shift, int count)
{
    if (divide > 1 && at % divide != 0) return -1;
    int64_t from = divide > 1 ? at / divide + shift : (int64_t)(at + shift) * multiply;
    return from >= 0 && from < count ? (int)from : -1;
}

template <class W> __global__ void __launch_bounds__(THREADS)
border_kernel(W *to, const W *from, struct view v)
{
    for (int64_t row = blockIdx.x; row < v.rows; row += gridDim.x) {
        int64_t image = row / v.h;
        int line = source((int)(row - image * v.h), v.multiply, v.divide, v.top, v.from_h);
        for (int w = threadIdx.y; w < v.w; w += blockDim.y) {
            int column = line < 0 ? -1 : source(w, v.multiply, v.divide, v.left, v.from_w);
            const W *pixel = from + ((image * v.from_h + line) * v.from_w + column) * v.from_words + v.front;
            W *here = to + (row * v.w + w) * v.words;
            for (int64_t i = threadIdx.x; i < v.words; i += blockDim.x) {
                bool inside = column >= 0 && i + v.front >= 0 && i + v.front < v.from_words;
                here[i] = inside ? pixel[i] : W{};
            }
        }
    }
}

static enum status border_copy(const struct call *call, const struct tensor *to, const struct tensor *from,
                               struct view v)
{
    int64_t size = (int64_t)dtype_bytes(to->dtype);
    int64_t bits = 16 | to->shape.c * size | from->shape.c * size | v.front * size;
    int64_t bytes = bits & -bits;
    v.words = to->shape.c * size / bytes;
    v.from_words = from->shape.c * size / bytes;
    v.front = v.front * size / bytes;
    v.rows = to->shape.n * to->shape.h;
    if (v.rows == 0) return OK;
    int across = power_up(v.words, THREADS), down = power_up(v.w, THREADS / across);
    unsigned blocks = grid_of(call, v.rows * across * down, across * down, 4);
    return with_word((size_t)bytes, [&](auto word) {
        using W = decltype(word);
        dim3 threads(across, down);
        border_kernel<<<blocks, threads, 0, stream_of(call)>>>((W *)to->data, (const W *)from->data, v);
        return launched(call);
    });
}

static struct view view_of(struct shape to, struct shape from)
{
    return {.h = (int)to.h, .w = (int)to.w, .from_h = (int)from.h, .from_w = (int)from.w,
            .multiply = 1, .divide = 1};
}

enum status border_forward_cuda(const struct call *call, const struct border *b)
{
    struct view view = view_of(call->y.shape, call->x[0].shape);
    view.multiply = (int)b->stride;
    view.top = (int)-b->top;
    view.left = (int)-b->left;
    view.front = -b->front;
    return border_copy(call, &call->y, &call->x[0], view);
}

enum status border_backward_cuda(const struct call *call, const struct border *b)
{
    if (!call->d_x[0].data) return OK;
    struct view view = view_of(call->d_x[0].shape, call->d_y.shape);
    view.divide = (int)b->stride;
    view.top = (int)b->top;
    view.left = (int)b->left;
    view.front = b->front;
    return border_copy(call, &call->d_x[0], &call->d_y, view);
}
