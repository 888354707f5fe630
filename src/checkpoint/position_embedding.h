/* position_embedding.h: resizes position embeddings of one grid of patches to another, as timm's
 * resample_abs_pos_embed does: bicubic interpolation with antialiasing. */
#pragma once

#include "graph/graph.h"

/* Rows of `channels` numbers: `prefix` that stay, then those of a grid. */
struct position_embedding {
    int64_t prefix, channels;
    int64_t from_h, from_w, to_h, to_w;
};

/* Whether the parameter is a position embedding, and a tensor of this shape is one of a square grid and of as
 * many channels. */
bool position_embedding_fits(const struct graph *graph, const struct parameter *parameter,
                             const struct shape *found, struct position_embedding *embedding);

void position_embedding_resize(const struct position_embedding *embedding, const float *from, float *to);
