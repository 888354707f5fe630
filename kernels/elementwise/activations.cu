#include "kernels/elementwise/activation.cuh"
#include "kernels/elementwise/elementwise_sums.cuh"

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

static enum status activation_backward(const struct call *call)
{
    struct call_activation own = activation_of_op(call);
    const struct tensor *d_x = &call->d_x[0], *value = activation_value(call);
    if (!d_x->data) return OK;
    return with_activation(own.kind, [&](auto kind) {
        constexpr enum activation activation = (enum activation)decltype(kind)::number;
        activation_gradient_of<activation> gradient = {(float)own.slope};
        if constexpr (activation == ACTIVATION_RELU)
            if (call_operand(call, OPERAND_D_X_SUMS)) return map_with_sums(call, value, gradient);
        return map_tensors(call, d_x, &call->d_y, value, gradient);
    });
}

const struct op_code relu_cuda = {
    .supports = call_sums_gradient,
    .workspace = map_sums_workspace,
    .forward = activation_forward,
    .backward = activation_backward,
};
const struct op_code relu6_cuda = {.forward = activation_forward, .backward = activation_backward};
const struct op_code leaky_relu_cuda = {.forward = activation_forward, .backward = activation_backward};
const struct op_code silu_cuda = {.forward = activation_forward, .backward = activation_backward};
const struct op_code hardswish_cuda = {.forward = activation_forward, .backward = activation_backward};
