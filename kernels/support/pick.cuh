/* pick.cuh: copies of the pixels of images that a stride picks. */
#pragma once

#include "kernels/support/cuda.cuh"

/* Images of `in` pixels, of which `out` are picked. */
struct pick {
    enum dtype dtype;
    int n, c, in[2], out[2], stride[2];
};

static inline struct pick pick_of(enum dtype dtype, struct shape in, struct shape out, int stride)
{
    return {.dtype = dtype, .n = (int)in.n, .c = (int)in.c, .in = {(int)in.h, (int)in.w},
            .out = {(int)out.h, (int)out.w}, .stride = {stride, stride}};
}

enum status pick_copy(const struct call *call, const struct pick *pick, void *picked, const void *x);
/* Copies them back to x; its other pixels become zero. */
enum status pick_spread(const struct call *call, const struct pick *pick, void *x, const void *picked);
