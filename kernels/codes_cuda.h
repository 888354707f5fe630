/* codes_cuda.h: the ops' CUDA code by name, for the ops' definitions and the .cu files that hold it. */
#pragma once

#include "kernels/op.h"

extern const struct op_code add_cuda, attention_cuda, batch_moments_cuda, batchnorm_conv_cuda,
    batchnorm_cuda, batchnorm_maxpool_cuda, cast_cuda, channel_shuffle_cuda, concat_conv_cuda, concat_cuda,
    conv_batchnorm_cuda, conv_cuda, conv_transpose_concat_cuda, conv_transpose_cuda, distill_cuda,
    drop_path_cuda, dropout_cuda, flatten_cuda, gelu_cuda, grn_cuda, groupnorm_cuda, hardsigmoid_cuda,
    hardswish_cuda, layernorm_cuda, leaky_relu_cuda, linear_cuda, linear_scale_cuda, lrn_cuda,
    moments_cuda, multiply_cuda, patch_merge_cuda, pixel_loss_cuda, pointwise_loss_cuda, position_cuda,
    prepend_cuda, rank_moments_cuda, relu6_cuda, relu_cuda, scale_cuda, sigmoid_cuda, silu_cuda,
    softmax_cross_entropy_cuda, sum_cuda, sum_ranks_cuda, sum_rounded_cuda, token_pool_cuda, topk_cuda,
    upsample_cuda;

/* op_code.supports of CUDA code: host code in the file of the op's name, of shapes alone. */
bool attention_cuda_supports(const struct call *call);
bool batch_moments_cuda_supports(const struct call *call);
bool batchnorm_conv_cuda_supports(const struct call *call);
bool batchnorm_cuda_supports(const struct call *call);
bool batchnorm_maxpool_cuda_supports(const struct call *call);
bool concat_conv_cuda_supports(const struct call *call);
bool concat_cuda_supports(const struct call *call);
bool conv_cuda_supports(const struct call *call);
bool conv_transpose_concat_cuda_supports(const struct call *call);
bool linear_cuda_supports(const struct call *call);
bool linear_scale_cuda_supports(const struct call *call);
bool scale_cuda_supports(const struct call *call);
