#include "kernels/support/channel_sums.cuh"
#include "kernels/elementwise/elementwise.cuh"
#include "kernels/support/join.cuh"

static enum status relu_forward(const struct call *call)
{
    return map_tensor(call, &call->y, &call->x[0], [] __device__(float x) { return x <= 0 ? 0 : x; });
}

static enum status relu_mask_gradient(const struct call *call)
{
    return map_tensors(call, &call->d_x[0], &call->d_y, &call->y,
                       [] __device__(float d_y, float y) { return y <= 0 ? 0 : d_y; });
}

/* True if one sweep computes d_x and its sums. */
static bool is_joined(const struct tensor *d_x)
{
    return d_x->shape.c % (16 / (int)dtype_bytes(d_x->dtype)) == 0;
}

static size_t relu_workspace(const struct call *call)
{
    const struct tensor *d_x = &call->d_x[0];
    if (!call_operand(call, OPERAND_D_X_SUMS)) return 0;
    if (is_joined(d_x)) return join_workspace(d_x);
    return channel_sums_workspace(shape_count(d_x->shape) / d_x->shape.c, (int)d_x->shape.c, false);
}

static enum status relu_backward(const struct call *call)
{
    const struct tensor *d_x = &call->d_x[0];
    if (!d_x->data) return OK;
    float *sums = (float *)call_data(call, OPERAND_D_X_SUMS);
    if (!sums) return relu_mask_gradient(call);
    if (is_joined(d_x)) {
        static const struct batchnorm relu = {.activation = ACTIVATION_RELU};
        struct join join = {.d_y = call->d_y, .y = call->y.data, .dz = d_x->data, .sums = sums};
        return join_run(call, &relu, &join, (float *)call->workspace);
    }
    TRY(relu_mask_gradient(call));
    return channel_sums(call, d_x, sums, false);
}

const struct op_code relu_cuda = {
    .supports = call_sums_gradient,
    .workspace = relu_workspace,
    .forward = relu_forward,
    .backward = relu_backward,
};
