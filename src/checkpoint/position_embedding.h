/* position_embedding.h: resizes position embeddings of one grid of patches to another, as timm's
 * resample_abs_pos_embed does: bicubic interpolation with antialiasing. */
#pragma once

#include "graph/graph.h"

/* Rows of `channels` numbers: `prefix` that stay, then those of a grid. */
struct position_embedding {
    int64_t prefix, channels;
    int64_t from_h, from_w, to_h, to_w;
};

/* The grid of patches that a parameter has positions of; 0 x 0: it is no position embedding. */
struct image_size position_embedding_grid(const struct graph *graph, const struct parameter *parameter);

/* A tensor that may be a position embedding, of a network for images of a size, 0 x 0 if that is unknown. */
struct position_tensor {
    const struct shape *shape;
    struct image_size images;
};

/* True if the parameter is a position embedding, and the tensor is one of as many channels: of the grid that
 * its images have, or of a square one. */
bool position_embedding_fits(const struct graph *graph, const struct parameter *parameter,
                             const struct position_tensor *found, struct position_embedding *embedding);

/* True if the grids differ. */
static inline bool position_embedding_moves(const struct position_embedding *embedding)
{
    return embedding->from_h != embedding->to_h || embedding->from_w != embedding->to_w;
}

void position_embedding_resize(const struct position_embedding *embedding, const float *from, float *to);
