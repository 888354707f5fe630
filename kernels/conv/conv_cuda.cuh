/* conv_cuda.cuh: convolutions on CUDA: a call's numbers, and the algorithms of conv.cu. */
#pragma once

#include "kernels/support/autotune.cuh"
#include "kernels/support/pick.cuh"
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

/* What calls ask besides. */
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

/* Whether it is one product, without what only depthwise code does: relu6 of x, and both gradients. */
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

extern const struct algorithm conv_by_cudnn, conv_by_product, conv_by_depthwise, conv_by_stem, conv_by_joined,
    conv_by_direct, conv_by_gemm, conv_by_gemm_per_image;

/* Small enough for tests and toys, where precision is worth more than speed: gradients of weights are not
 * rounded to 16 bits on the way, and sums are those of y as stored. */
static inline bool conv_is_small(const struct conv_sizes *p)
{
    return conv_products(p) < 1e8;
}

/* y [n, h, w, c] summed over all but its channels into to[c], and with `squares` y * y into to[c..2c). */
size_t conv_sums_workspace(int64_t rows, int width, bool squares);
enum status conv_sums(const struct call *call, const struct tensor *y, float *to, bool squares);
/* Without squares, in the same workspace, of those y whose `number` is not `left_out`. */
enum status conv_sums_where(const struct call *call, const struct tensor *y, float *to,
                            const uint8_t *numbers, int left_out);
/* Copies the picked pixels of x and adds them up, in the workspace of conv_sums. */
enum status conv_sums_picked(const struct pick *pick, const struct call *call, void *picked, const void *x,
                             float *to);

/* columns[n, out, kernel, c]: what each pixel of y reads of x, zeros outside the image; and, as p's d_x, the
 * sums of such columns of type `columns_type` over what reads each pixel of x. One group. */
enum status conv_columns_make(const struct conv_call *p, void *columns, const void *x);
enum status conv_columns_add(const struct conv_call *p, enum dtype columns_type, const void *columns,
                             void *x);

/* to[i] = the sum of shares[s * count + i], in a fixed order. */
enum status conv_sum_shares(const struct call *call, float *to, const float *shares, int share_count,
                            int count);
