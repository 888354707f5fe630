/* batch_moments: y[0] = mean, y[1] = unbiased variance, [1, 1, 2, c], of every channel of x: the beginning of
 * batch norm's forward, where ranks then share it (train.sync_bn). CPU and CUDA code are batch norm's own. */
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"

static bool batch_moments_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                struct reason *reason)
{
    *y = (struct shape){.rank = 4, .n = 1, .h = 1, .w = 2, .c = x[0].c};
    return true;
}

static enum dtype output_dtype(const void *settings, enum dtype input)
{
    return F32;
}

static enum status batch_moments_forward(const struct call *call)
{
    const struct tensor *x = &call->x[0];
    int64_t channels = x->shape.c, total = shape_count(x->shape);
    double count = (double)(total / channels);
    for (int64_t k = 0; k < channels; k++) {
        double mean = 0, squares = 0;
        for (int64_t i = k; i < total; i += channels) mean += tensor_get(x, i) / count;
        for (int64_t i = k; i < total; i += channels)
            squares += (tensor_get(x, i) - mean) * (tensor_get(x, i) - mean);
        tensor_set(&call->y, k, mean);
        tensor_set(&call->y, channels + k, count > 1 ? squares / (count - 1) : 0);
    }
    return OK;
}

bool batch_moments_cuda_supports(const struct call *call)
{
    return call->phase == PHASE_FORWARD && call_has_only(call, AS_BIT(OPERAND_X_MOMENTS), 0);
}

static const struct op_code reference = {.forward = batch_moments_forward};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 1, {SHAPE(3, 7, 7, 5)}},
    {"", 1, {SHAPE(4, 28, 28, 24)}},
    {"", 1, {SHAPE(3, 1, 1, 1100)}},
    {0},
};

const struct op batch_moments_op = {
    .name = "batch_moments",
    .help = "Mean and variance by channel.",
    .internal = true,
    .shape = batch_moments_shape,
    .output_dtype = output_dtype,
    .reference = &reference,
    .cpu = &batch_moments_cpu,
    .cuda = ON_CUDA(batch_moments_cuda),
    .supports_cuda = batch_moments_cuda_supports,
    .examples = examples,
};
