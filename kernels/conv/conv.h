/* conv.h: the convolution's settings as its code on each device reads them. */
#pragma once

#include "kernels/algorithm.h"
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

/* Rows for a field table of settings that begin with struct conv_settings. */
#define CONV_AT(member) offsetof(struct conv_settings, member)
#define CONV_FIELDS \
    {.name = "filters", .type = FIELD_INT, .offset = CONV_AT(filters), .min = 1, .max = 1 << 20, \
     .help = "Output channels."}, \
    {.name = "kernel", .type = FIELD_INT, .offset = CONV_AT(kernel), .initial = "0", .min = 0, \
     .max = 1 << 12, \
     .help = "Height and width of the kernel."}, \
    {.name = "kernel_h", .type = FIELD_INT, .offset = CONV_AT(kernel_h), .initial = "same", .word = "same", \
     .word_value = CONV_SAME, .min = 1, .max = 1 << 12, \
     .help = "Height of the kernel, if it differs."}, \
    {.name = "kernel_w", .type = FIELD_INT, .offset = CONV_AT(kernel_w), .initial = "same", .word = "same", \
     .word_value = CONV_SAME, .min = 1, .max = 1 << 12, \
     .help = "Width of the kernel, if it differs."}, \
    {.name = "stride", .type = FIELD_INT, .offset = CONV_AT(stride), .initial = "1", .min = 1, \
     .max = 1 << 12, \
     .help = "Stride of the kernel."}, \
    {.name = "stride_h", .type = FIELD_INT, .offset = CONV_AT(stride_h), .initial = "same", .word = "same", \
     .word_value = CONV_SAME, .min = 1, .max = 1 << 12, .help = "Vertical stride, if it differs."}, \
    {.name = "stride_w", .type = FIELD_INT, .offset = CONV_AT(stride_w), .initial = "same", .word = "same", \
     .word_value = CONV_SAME, .min = 1, .max = 1 << 12, .help = "Horizontal stride, if it differs."}, \
    {.name = "pad", .type = FIELD_INT, .offset = CONV_AT(pad), .initial = "0", .min = 0, .max = 1 << 12, \
     .help = "Zero padding on every side."}, \
    {.name = "pad_h", .type = FIELD_INT, .offset = CONV_AT(pad_h), .initial = "same", .word = "same", \
     .word_value = CONV_SAME, .min = 0, .max = 1 << 12, \
     .help = "Zero padding above and below, if it differs."}, \
    {.name = "pad_w", .type = FIELD_INT, .offset = CONV_AT(pad_w), .initial = "same", .word = "same", \
     .word_value = CONV_SAME, .min = 0, .max = 1 << 12, \
     .help = "Zero padding left and right, if it differs."}, \
    {.name = "dilation", .type = FIELD_INT, .offset = CONV_AT(dilation), .initial = "1", .min = 1, \
     .max = 1 << 12, \
     .help = "Spacing of the kernel elements."}, \
    {.name = "groups", .type = FIELD_INT, .offset = CONV_AT(groups), .initial = "1", .min = 1, \
     .max = 1 << 20, \
     .word = "in", .word_value = CONV_GROUPS_IN, \
     .help = "Number of channel groups convolved separately; in: one per input channel (depthwise)."}, \
    WEIGHT_FIELDS(struct conv_settings, weight)

/* The settings with shorthands resolved; [0] is along h, [1] along w. */
struct conv_geometry {
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int64_t groups;
};
struct conv_geometry conv_geometry(const struct conv_settings *settings, int64_t channels);

/* True if kernels of size x size, which is odd, read all channels and keep the image's size. */
static inline bool conv_keeps_size(const struct conv_geometry *g, int size)
{
    bool keeps = g->groups == 1;
    for (int i = 0; i < 2; i++)
        keeps = keeps && g->kernel[i] == size && g->stride[i] == 1 && g->pad[i] == size / 2 &&
                (size == 1 || g->dilation[i] == 1);
    return keeps;
}

/* Convolutions of fewer products are small (conv_cuda.cuh). */
#define CONV_SMALL 1e8
/* Pixels of a strip in conv_narrow.cu. */
#define CONV_STRIP 128
/* True if the strips of an image `w` wide mostly lie in it. */
static inline bool conv_fills_strips(int64_t w)
{
    return 4 * w >= 3 * CONV_STRIP * ((w + CONV_STRIP - 1) / CONV_STRIP);
}

/* 1x1 in 16 bits, of few channels to few filters: CUDA code (conv_thin.cu) computes both gradients at once,
 * and what a batch norm in front needs. */
bool conv_is_thin(const struct call *call);

extern const struct op conv_op;
extern const struct op_code conv_reference, conv_cpu;
extern const struct algorithm *const conv_cpu_algorithms[];
extern const char *const conv_cpu_variants[];

/* Algorithms of our own on the CPU, in the place of the library's. */
extern const struct algorithm conv_depthwise, conv_gemm, conv_gemm_per_image, conv_shifted, conv_winograd;

/* Tells a kernel plan, of any op on the CPU, that weights do not change any more: what code derives of them
 * (other layouts, transforms) is then computed once, and kept beside the plan's memory. */
void conv_cpu_keep_weights(struct kernel_plan *plan);
void conv_winograd_keep_weights(struct kernel_plan *plan);

/* op_code.supports of the reference. */
bool conv_supports(const struct call *call);

/* ---- conv_transpose: settings, and the convolution that has its phases ---- */

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
