/* conv_transpose.h: the transposed convolution's settings, and the convolution that has its phases. */
#pragma once

#include "kernels/conv/conv.h"

struct conv_transpose {
    struct conv_settings conv;      /* filters: the output's channels */
    int64_t output_pad;
};

/* A call of conv, and what it points to. */
struct conv_transposed {
    struct call call;
    struct conv_settings settings;
    struct tensor x, d_x;
};

/* Returns the call of conv, without a bias, that does the same: x and y are exchanged, and so are forward and
 * backward_data. */
const struct call *conv_transposed(const struct call *call, struct conv_transposed *as);

extern const struct op_code conv_transpose_cpu;
