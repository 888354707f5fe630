/* conv_cuda.cuh: convolutions on CUDA: a call's numbers, and the algorithms of conv.cu. */
#pragma once

#include "kernels/support/autotune.cuh"
#include "kernels/support/columns.cuh"
#include "kernels/support/planned.cuh"

extern "C" {
#include "kernels/conv/conv.h"
}

/* y[n, out, k] from x[n, in, c] and weight[k, kernel, c / groups]; [0] is along h, [1] along w. */
struct conv_sizes {
    int n, c, k, groups;
    int in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
};

/* A call with its sizes. */
struct conv_call : conv_sizes {
    const struct call *call;
    enum phase phase;
    enum dtype dtype;                        /* of x, y, and the weights and bias that forward reads */
};
struct conv_call conv_call_of(const struct call *call);

/* Epilogues and bias of a call. */
static inline bool conv_adds_bias(const struct call *call)
{
    return call->phase == PHASE_FORWARD && call->param_count > 1;
}
static inline bool conv_gives_moments(const struct call *call)
{
    return call_epilogue(call, EPILOGUE_MOMENTS);
}
static inline bool conv_applies_relu(const struct call *call) { return call_epilogue(call, EPILOGUE_RELU); }
static inline bool conv_clips(const struct call *call) { return call_epilogue(call, EPILOGUE_X_RELU6); }

/* True for calls that all algorithms know: without relu6 of x, and one gradient. */
static inline bool conv_is_usual(const struct call *call)
{
    return !conv_clips(call) && call->phase != PHASE_BACKWARD;
}

/* Patches side by side, as transformers embed them: each pixel of x is read at one tap. */
static inline bool conv_is_patches(const struct conv_sizes *p)
{
    bool sides = true;
    for (int i = 0; i < 2; i++)
        sides = sides && p->stride[i] == p->kernel[i] && p->pad[i] == 0 && p->dilation[i] == 1;
    return sides && p->groups == 1 && p->kernel[0] * p->kernel[1] > 1;
}

/* The tensors of a phase: a gradient takes the place of its tensor. */
static inline void *conv_x(const struct call *call)
{
    return call->phase == PHASE_BACKWARD_DATA ? call->d_x[0].data : call->x[0].data;
}
static inline void *conv_y(const struct call *call)
{
    return call->phase == PHASE_FORWARD ? call->y.data : call->d_y.data;
}
static inline void *conv_weight(const struct call *call)
{
    return (call->phase == PHASE_BACKWARD_PARAMS ? call->d_params : call->params)[0].data;
}
static inline void *conv_bias(const struct call *call)
{
    return conv_adds_bias(call) ? call->params[1].data : NULL;
}

/* Multiplications, each with an addition. */
static inline double conv_products(const struct conv_sizes *p)
{
    return (double)p->n * p->out[0] * p->out[1] * p->k * (p->c / p->groups) * p->kernel[0] * p->kernel[1];
}

extern const struct algorithm *const conv_cuda_algorithms[];
extern const struct algorithm conv_by_cudnn, conv_by_product, conv_by_rows, conv_by_thin, conv_by_depthwise,
    conv_by_stem, conv_by_joined, conv_by_narrow, conv_by_direct, conv_by_gemm, conv_by_gemm_per_image;

/* The capability that conv_thin.cu's instructions require. */
#define CONV_THIN_CAPABILITY 80

/* A batch norm with relu in front of it, on the device; channels NULL: none. x is then the norm's, backward
 * leaves its d_bias and d_weight as products, and backward_data writes its d_x, over x if that is wanted. */
struct thin_norm {
    const float4 *channels;                  /* mean, weight * invstd, bias, invstd */
    const float2 *lines;                     /* d_x = scale * dz + line.x * (x - mean) + line.y */
    const void *x;
};
enum status conv_thin_run(const struct call *call, const struct thin_norm &norm);

/* Small enough for tests and toys, where precision is worth more than speed: gradients of weights are not
 * rounded to 16 bits on the way, and sums are those of y as stored. */
static inline bool conv_is_small(const struct conv_sizes *p)
{
    return conv_products(p) < CONV_SMALL;
}

/* columns[n, out, kernel, c]: what each pixel of y reads of x, zeros outside the image; and, as p's d_x, the
 * sums of such columns of type `columns_type` over what reads each pixel of x. One group. */
enum status conv_columns_make(const struct conv_call *p, void *columns, const void *x);
enum status conv_columns_add(const struct conv_call *p, enum dtype columns_type, const void *columns,
                             void *x);
