/* conv_transpose_concat.h: its settings, and the two calls that it takes the place of. */
#pragma once

#include "kernels/conv/conv.h"

extern const struct op conv_transpose_op, concat_op;

struct conv_transpose_concat {
    struct conv_transpose up;
    bool first;                  /* its channels are before those of the other input */
};

struct conv_transpose_concat_calls {
    struct call up, concat;
    struct tensor x[2], d_x[2];  /* of concat */
};

/* Divides a call; `up` is the memory of conv_transpose's result, or of its gradient: NULL: concat leaves its
 * channels out. */
void conv_transpose_concat_divide(const struct call *call, void *up, struct conv_transpose_concat_calls *as);
