/* conv_layout.cuh: copies between the tensors' layouts and those on which cuDNN's engines are fast.
 *
 * Source and destination may have different types; both are given as dtypes. */
#pragma once

#include "kernels/conv/conv_cuda.cuh"

/* A view as [blocks][rows][middle][width], of which rows and width change: added elements are zero,
 * surplus ones dropped. x has one block and row, n * h * w * groups middles; weights have a block for each
 * group. */
struct layout_resize {
    int64_t blocks;
    int64_t rows[2];      /* [0] before, [1] after */
    int64_t middle;
    int width[2];
};
enum status layout_resize(const struct call *call, struct layout_resize view, enum dtype to_type, void *to,
                          enum dtype from_type, const void *from);

/* y[row, k] = from[row, its column] + bias[k]: groups of `filters` channels lie `wide` apart in `from`. bias
 * may be NULL, and y may be `from` when types and widths are the same. */
struct layout_output {
    int64_t rows;
    int groups, filters, wide;
    enum dtype y_type, from_type;
    void *y;
    const void *from, *bias;
    bool relu;
};
enum status layout_output(const struct call *call, struct layout_output output);

/* Space to depth: an image of folded pixels, each of which holds fold[0] x fold[1] pixels of x as channels
 * [row in it][column in it][channel], then zeros up to `channels`. Folded pixel j begins at x's pixel
 * j * fold - lead; pixels outside x are zero. Kernel taps are folded likewise: folded tap a begins at
 * tap a * fold - shift. */
struct layout_fold {
    int n, c, channels;
    int in[2], out[2];         /* pixels of x, folded pixels */
    int fold[2], lead[2], shift[2];
    int filters, kernel[2], taps[2];   /* taps of the weights, folded taps */
};
enum status layout_fold_x(const struct call *call, const struct layout_fold *fold, enum dtype dtype, void *to,
                          const void *x);
enum status layout_fold_weight(const struct call *call, const struct layout_fold *fold, enum dtype dtype,
                               void *to, const void *weight);
/* The inverse, for the weights' gradient, in fp32. */
enum status layout_unfold_weight(const struct call *call, const struct layout_fold *fold, float *d_weight,
                                 enum dtype from_type, const void *from);

/* [count][rows][columns] to [count][columns][rows], fp32. */
enum status layout_transpose(const struct call *call, int64_t count, int rows, int columns, float *to,
                             const float *from);
