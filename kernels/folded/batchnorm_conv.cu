/* batchnorm_conv.cu: batchnorm_conv by kernels of conv_thin.cu, which normalise what they load. Backward
 * computes the gradient of the normalised tensor twice: for all sums, and for d_x, which needs them. */
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/norm/batchnorm.cuh"

extern "C" {
#include "kernels/codes_cuda.h"
#include "kernels/folded/batchnorm_conv.h"
}

/* Numbers of each channel, of which thin has at most 64: the beginning of the workspace. */
struct known {
    float4 channels[64];                 /* as in thin_norm */
    float2 lines[64];
    float sums[2 * 64];                  /* d_bias, d_weight */
};

__global__ void batchnorm_conv_channels_kernel(struct batchnorm_parts::channel_values values,
                                               struct known *to)
{
    int k = threadIdx.x;
    batchnorm_parts::factors<1> f = batchnorm_parts::factors_at<1>(values, k);
    to->channels[k] = {f.mean[0], f.scale[0], f.bias[0], values.spread[k]};
}

/* d_weight and d_bias may be NULL. */
__global__ void batchnorm_conv_lines_kernel(struct known *of, float count, float *d_weight, float *d_bias)
{
    int k = threadIdx.x;
    float4 channel = of->channels[k];
    float sum = of->sums[k], product = of->sums[blockDim.x + k];
    of->lines[k] = {-channel.y * channel.w * product / count, -channel.y * sum / count};
    if (d_weight) d_weight[k] = product, d_bias[k] = sum;
}

/* Divides the call, with x and d_x for what is not stored, and computes its channels. */
static enum status begin(const struct call *call, struct batchnorm_conv_calls *as, struct thin_norm *norm)
{
    struct known *known = (struct known *)call->workspace;
    batchnorm_conv_divide(call, call->x[0].data, call->d_x[0].data, as);
    as->norm.workspace = as->conv.workspace = known + 1;
    *norm = {known->channels, known->lines, call->x[0].data};
    if (call->phase == PHASE_FORWARD && call->training) TRY(batchnorm_statistics_cuda(&as->norm));
    batchnorm_conv_channels_kernel<<<1, (unsigned)call->x[0].shape.c, 0, stream_of(call)>>>(
        batchnorm_parts::values_of(&as->norm), known);
    return launched(call);
}

static enum status forward(const struct call *call)
{
    struct batchnorm_conv_calls as;
    struct thin_norm norm;
    TRY(begin(call, &as, &norm));
    as.conv.phase = PHASE_FORWARD;
    return conv_thin_run(&as.conv, norm);
}

static enum status backward(const struct call *call)
{
    struct batchnorm_conv_calls as;
    struct thin_norm norm;
    struct known *known = (struct known *)call->workspace;
    TRY(begin(call, &as, &norm));
    call_put(&as.conv, OPERAND_X_PRODUCTS)->data = known->sums;
    TRY(conv_thin_run(&as.conv, norm));
    bool affine = ((const struct batchnorm *)as.norm.settings)->affine;
    int64_t channels = call->x[0].shape.c, count = shape_count(call->x[0].shape) / channels;
    batchnorm_conv_lines_kernel<<<1, (unsigned)channels, 0, stream_of(call)>>>(
        known, (float)count, affine ? (float *)call->d_params[0].data : NULL,
        affine ? (float *)call->d_params[1].data : NULL);
    TRY(launched(call));
    as.conv.phase = PHASE_BACKWARD_DATA;
    return call->d_x[0].data ? conv_thin_run(&as.conv, norm) : OK;
}

static size_t workspace(const struct call *call)
{
    struct batchnorm_conv_calls as;
    struct kernel_plan thin = {};
    batchnorm_conv_divide(call, NULL, NULL, &as);
    if (call->phase == PHASE_FORWARD) thin.workspace = batchnorm_cuda.workspace(&as.norm);
    else if (call->phase == PHASE_BACKWARD) conv_by_thin.make(&as.conv, &thin);
    return sizeof(struct known) + thin.workspace;
}

static bool supports(const struct call *call)
{
    bool runs = !call->device || cuda_facts(call->device)->capability >= CONV_THIN_CAPABILITY;
    return runs && batchnorm_conv_cuda_supports(call);
}

const struct op_code batchnorm_conv_cuda = {
    .channels_last = true,
    .plans_together = true,
    .supports = supports,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
    .update = batchnorm_update_cuda,
    .recompute = forward,
};
