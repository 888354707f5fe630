/* patch_merge: the four pixels of each 2x2 patch become one with all of their channels (Liu et al. 2021, Swin
 * Transformer); an odd size is padded with zeros at the bottom and the right.
 *
 *   y[n, i, j, q * c + k] = x[n, 2 i + q % 2, 2 j + q / 2, k]
 *
 * so that the linear layer behind it takes torchvision's weights. */
#include <string.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/op.h"

static bool patch_merge_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                              struct reason *reason)
{
    *y = shape_nhwc(x[0].n, (x[0].h + 1) / 2, (x[0].w + 1) / 2, 4 * x[0].c);
    return true;
}

/* The pixel of x whose channels are quarter `quarter` of y, or -1 in the padding. A quarter of y stands for
 * the pixel of x in a fixed place, so this maps backward as well. */
static int64_t merged_pixel(struct shape x, struct shape y, int64_t quarter)
{
    int64_t q = quarter % 4, pixel = quarter / 4;
    int64_t h = 2 * (pixel / y.w % y.h) + q % 2, w = 2 * (pixel % y.w) + q / 2;
    return h < x.h && w < x.w ? (pixel / y.w / y.h * x.h + h) * x.w + w : -1;
}

static enum status patch_merge_forward(const struct call *call)
{
    struct shape x = call->x[0].shape, y = call->y.shape;
    size_t bytes = (size_t)x.c * dtype_bytes(call->y.dtype);
#pragma omp parallel for schedule(static) if (shape_count(y) > PARALLEL)
    for (int64_t quarter = 0; quarter < shape_count(y) / x.c; quarter++) {
        int64_t from = merged_pixel(x, y, quarter);
        char *to = block_address(&call->y, quarter * x.c);
        if (from >= 0) memcpy(to, block_address(&call->x[0], from * x.c), bytes);
        else memset(to, 0, bytes);
    }
    return OK;
}

static enum status patch_merge_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct shape x = call->d_x[0].shape, y = call->d_y.shape;
    size_t bytes = (size_t)x.c * dtype_bytes(call->d_y.dtype);
#pragma omp parallel for schedule(static) if (shape_count(y) > PARALLEL)
    for (int64_t quarter = 0; quarter < shape_count(y) / x.c; quarter++) {
        int64_t to = merged_pixel(x, y, quarter);
        if (to >= 0) memcpy(block_address(&call->d_x[0], to * x.c), block_address(&call->d_y, quarter * x.c),
                            bytes);
    }
    return OK;
}

static const struct op_code reference = {.forward = patch_merge_forward, .backward = patch_merge_backward};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 8, .w = 6, .c = 24}}},
    {"", 1, {{.rank = 4, .n = 2, .h = 7, .w = 5, .c = 5}}},
    {"", 1, {{.rank = 4, .n = 1, .h = 1, .w = 4, .c = 776}}},
    {0},
};

static const struct op_example large[] = {
    {"", 1, {{.rank = 4, .n = 16, .h = 56, .w = 56, .c = 96}}},
    {0},
};

const struct op patch_merge_op = {
    .name = "patch_merge",
    .help = "Merges each patch of 2x2 pixels into one pixel with all of their channels.",
    .shape = patch_merge_shape,
    .reference = &reference,
    .cuda = ON_CUDA(patch_merge_cuda),
    .examples = examples,
    .large = large,
};
