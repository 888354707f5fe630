/* shape.h: the extents of a tensor; activations are always n, h, w, c, with c innermost. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Activations have rank 4 and are named n h w c. Parameters have torch's rank and order: convolution weights
 * k, c, r, s; linear weights units, inputs; vectors c. */
struct shape {
    int rank;
    union {
        int64_t dim[4];
        struct {
            int64_t n, h, w, c;
        };
    };
};

static inline struct shape shape_nhwc(int64_t n, int64_t h, int64_t w, int64_t c)
{
    return (struct shape){.rank = 4, .dim = {n, h, w, c}};
}
static inline struct shape shape_vector(int64_t c)
{
    return (struct shape){.rank = 1, .dim = {c, 1, 1, 1}};
}
static inline int64_t shape_count(struct shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++) count *= shape.dim[i];
    return count;
}
static inline bool shape_equal(struct shape a, struct shape b)
{
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; i++)
        if (a.dim[i] != b.dim[i]) return false;
    return true;
}

/* Height and width of an image, in pixels. */
struct image_size {
    int h, w;
};

static inline struct image_size image_size_square(int side)
{
    return (struct image_size){side, side};
}

static inline bool image_size_equal(struct image_size a, struct image_size b)
{
    return a.h == b.h && a.w == b.w;
}

/* "64x7x7x3" in a buffer of the caller's; returns the buffer. */
#define SHAPE_TEXT 96
const char *shape_text(struct shape shape, char text[SHAPE_TEXT]);
