/* add: y = x[0] + x[1] + ..., in that order, rounded once. */
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/elementwise.h"

static bool passes_gradient(const void *settings, int x_count, const struct shape *x)
{
    return true;
}

static enum status add_forward(const struct call *call)
{
    int64_t count = shape_count(call->y.shape);
    bool relu = call_epilogue(call, EPILOGUE_RELU);
    for (int64_t i = 0; i < count; i++) {
        double sum = tensor_get(&call->x[0], i);
        for (int k = 1; k < call->x_count; k++) sum += tensor_get(&call->x[k], i);
        tensor_set(&call->y, i, relu && sum <= 0 ? 0 : sum);
    }
    return OK;
}

static const struct op_code reference = {.supports = call_applies_relu, .forward = add_forward};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 2, {SHAPE(3, 7, 7, 5), SHAPE(3, 7, 7, 5)}},
    {"", 3, {SHAPE(1, 31, 7, 24), SHAPE(1, 31, 7, 24), SHAPE(1, 31, 7, 24)}},
    {"", 2, {SHAPE(3, 1, 1, 1), SHAPE(3, 1, 1, 1)}},
    {0},
};

const struct op add_op = {
    .name = "add",
    .help = "Elementwise sum.",
    .min_inputs = 2,
    .max_inputs = OP_MAX_INPUTS,
    .shape = elementwise_same_shape,
    .in_place = elementwise_in_place,
    .passes_gradient = passes_gradient,
    .reference = &reference,
    .cpu = &add_cpu,
    .cuda = ON_CUDA(add_cuda),
    .supports_cuda = call_applies_relu,
    .examples = examples,
};

/* sum: the same of two gradients of one tensor, where it has several readers. */
const struct op sum_op = {
    .name = "sum",
    .help = "Sum of two gradients.",
    .min_inputs = 2,
    .max_inputs = 2,
    .internal = true,
    .shape = elementwise_same_shape,
    .in_place = elementwise_in_place,
    .passes_gradient = passes_gradient,
    .reference = &reference,
    .cpu = &add_cpu,
    .cuda = ON_CUDA(sum_cuda),
    .examples = (const struct op_example[]){
        {"", 2, {SHAPE(3, 7, 7, 5), SHAPE(3, 7, 7, 5)}},
        {0},
    },
};
