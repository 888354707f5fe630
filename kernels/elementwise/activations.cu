#include "kernels/support/channel_sums.cuh"
#include "kernels/elementwise/activation.cuh"
#include "kernels/elementwise/elementwise.cuh"
#include "kernels/support/join.cuh"

extern "C" {
#include "kernels/elementwise/activation.h"
}

template <enum activation activation> struct activation_output {
    float slope;
    __device__ float operator()(float x) const { return activate<activation>(x, slope); }
};

template <enum activation activation> struct activation_gradient_of {
    float slope;
    __device__ float operator()(float d_y, float value) const
    {
        return pass_back<activation>(value, d_y, slope);
    }
};

static enum status activation_forward(const struct call *call)
{
    struct call_activation own = activation_of_op(call);
    return with_activation(own.kind, [&](auto kind) {
        activation_output<(enum activation)decltype(kind)::number> output = {(float)own.slope};
        return map_tensor(call, &call->y, &call->x[0], output);
    });
}

/* True if one sweep computes d_x and its sums. */
static bool is_joined(const struct tensor *d_x)
{
    return d_x->shape.c % (16 / (int)dtype_bytes(d_x->dtype)) == 0;
}

static size_t activation_workspace(const struct call *call)
{
    const struct tensor *d_x = &call->d_x[0];
    if (!call_operand(call, OPERAND_D_X_SUMS)) return 0;
    if (is_joined(d_x)) return join_workspace(d_x);
    return channel_sums_workspace(shape_count(d_x->shape) / d_x->shape.c, (int)d_x->shape.c, false);
}

/* Only relu has sums. */
static enum status activation_backward(const struct call *call)
{
    struct call_activation own = activation_of_op(call);
    const struct tensor *d_x = &call->d_x[0];
    float *sums = (float *)call_data(call, OPERAND_D_X_SUMS);
    if (!d_x->data) return OK;
    if (sums && is_joined(d_x)) {
        static const struct batchnorm relu = {.activation = ACTIVATION_RELU};
        struct join join = {.d_y = call->d_y, .y = call->y.data, .dz = d_x->data, .sums = sums};
        return join_run(call, &relu, &join, (float *)call->workspace);
    }
    TRY(with_activation(own.kind, [&](auto kind) {
        activation_gradient_of<(enum activation)decltype(kind)::number> gradient = {(float)own.slope};
        return map_tensors(call, d_x, &call->d_y, activation_value(call), gradient);
    }));
    return sums ? channel_sums(call, d_x, sums, false) : OK;
}

const struct op_code relu_cuda = {
    .supports = call_sums_gradient,
    .workspace = activation_workspace,
    .forward = activation_forward,
    .backward = activation_backward,
};
const struct op_code relu6_cuda = {.forward = activation_forward, .backward = activation_backward};
const struct op_code leaky_relu_cuda = {.forward = activation_forward, .backward = activation_backward};
const struct op_code silu_cuda = {.forward = activation_forward, .backward = activation_backward};
const struct op_code hardswish_cuda = {.forward = activation_forward, .backward = activation_backward};
