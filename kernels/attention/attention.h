/* attention.h: settings of attention, and how its tokens are divided into groups that attend to each
 * other. */
#pragma once

#include <math.h>

#include "kernels/op.h"

struct attention {
    int64_t heads, window, shift;
};

/* Forward saves it in training: of each head, then of each pixel of x, the logarithm of the sum of
 * exp(scores). */
enum { ATTENTION_LSE, ATTENTION_SAVED };

/* Added to the scores of tokens that only the cyclic shift makes neighbours, as in torchvision and timm. */
#define ATTENTION_APART (-100)

#define ATTENTION_SIZE_MAX 256     /* channels of a head in CUDA code */

/* A group is an image or, with windows, one of its windows; x has n x h x w pixels, one for each token, and y
 * has their first rows and columns. */
struct attention_plane {
    int64_t n, h, w, y_h, y_w;
    int64_t heads, size;            /* channels of a head */
    int64_t tokens, groups;         /* tokens of a group */
    int64_t window;                 /* 0: none */
    int64_t shift_h, shift_w;
};

static inline struct attention_plane attention_plane(const struct call *call)
{
    const struct attention *s = (const struct attention *)call->settings;
    struct shape x = call->x[0].shape, y = call->x[call->x_count - 1].shape;
    struct attention_plane p = {.n = x.n, .h = x.h, .w = x.w, .y_h = y.h, .y_w = y.w, .heads = s->heads,
                                .size = x.c / 3 / s->heads, .tokens = x.h * x.w, .groups = x.n,
                                .window = s->window};
    if (s->window == 0) return p;
    p.tokens = s->window * s->window;
    p.groups = x.n * (x.h / s->window) * (x.w / s->window);
    p.shift_h = s->window < x.h ? s->shift : 0;
    p.shift_w = s->window < x.w ? s->shift : 0;
    return p;
}

static inline int64_t attention_pixels(const struct attention_plane *p) { return p->n * p->h * p->w; }
static inline double attention_scale(const struct attention_plane *p)
{
    return 1 / sqrt((double)p->size);
}

/* Token `index` of a group: its pixel in x; that in y, -1: none; which tokens of a shifted window it attends
 * to: those of the same region. */
struct attention_token {
    int64_t pixel, y_pixel;
    int region;
};

/* 0 before the part of the shifted map that the windows at its end share, 1 and 2 in its two parts. */
static inline int attention_region(int64_t at, int64_t extent, int64_t window, int64_t shift)
{
    return shift == 0 || at < extent - window ? 0 : at < extent - shift ? 1 : 2;
}

static inline struct attention_token attention_token(const struct attention_plane *p, int64_t group,
                                                     int64_t index)
{
    if (p->window == 0)
        return (struct attention_token){group * p->tokens + index, group * p->tokens + index, 0};
    int64_t across = p->w / p->window, down = p->h / p->window, in_image = group % (across * down);
    int64_t h = in_image / across * p->window + index / p->window;
    int64_t w = in_image % across * p->window + index % p->window;
    int region = 3 * attention_region(h, p->h, p->window, p->shift_h) +
                 attention_region(w, p->w, p->window, p->shift_w);
    int64_t n = group / (across * down);
    h = (h + p->shift_h) % p->h, w = (w + p->shift_w) % p->w;
    bool in_y = h < p->y_h && w < p->y_w;
    return (struct attention_token){(n * p->h + h) * p->w + w, in_y ? (n * p->y_h + h) * p->y_w + w : -1,
                                    region};
}

/* The row of the bias table for two tokens of a window. */
static inline int64_t attention_bias_row(int64_t window, int64_t query, int64_t key)
{
    int64_t h = query / window - key / window + window - 1, w = query % window - key % window + window - 1;
    return h * (2 * window - 1) + w;
}

extern const struct op_code attention_cpu;
