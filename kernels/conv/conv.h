/* conv.h: the convolution's settings as its code on each device reads them. */
#pragma once

#include "kernels/op.h"
#include "kernels/support/weight.h"

#define CONV_SAME (-1)    /* kernel_h, stride_w ...: as kernel, stride, pad */
#define CONV_GROUPS_IN 0  /* one group per input channel */

struct conv_settings {
    int64_t filters;
    int64_t kernel, kernel_h, kernel_w;
    int64_t stride, stride_h, stride_w;
    int64_t pad, pad_h, pad_w;
    int64_t dilation, groups;
    struct weight_settings weight;
};

/* The settings with shorthands resolved; [0] is along h, [1] along w. */
struct conv_geometry {
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t groups;
};
struct conv_geometry conv_geometry(const struct conv_settings *settings, int64_t channels);

extern const struct op_code conv_reference, conv_cpu;

/* op_code.supports of the reference. */
bool conv_supports(const struct call *call);
