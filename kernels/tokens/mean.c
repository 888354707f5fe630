/* mean: y = (x[0] + x[1] + ...) / x_count, as of a network with several heads. */
#include "kernels/codes_cuda.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/tokens/tokens.h"

static enum status mean_forward(const struct call *call)
{
    int64_t count = shape_count(call->y.shape);
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int k = 0; k < call->x_count; k++) sum += tensor_get(&call->x[k], i);
        tensor_set(&call->y, i, sum / call->x_count);
    }
    return OK;
}

static enum status mean_backward(const struct call *call)
{
    int64_t count = shape_count(call->d_y.shape);
    for (int64_t i = 0; i < count; i++) {
        double share = tensor_get(&call->d_y, i) / call->x_count;
        for (int k = 0; k < call->x_count; k++)
            if (call->d_x[k].data) tensor_set(&call->d_x[k], i, share);
    }
    return OK;
}

#ifdef HAVE_CUDA
/* On CUDA it is a mean over tokens, which are the inputs side by side in the workspace. */
static size_t mean_workspace(const struct call *call)
{
    const struct tensor *whole = call->phase == PHASE_FORWARD ? &call->y : &call->d_y;
    return (size_t)(shape_count(whole->shape) * call->x_count) * dtype_bytes(whole->dtype);
}

static struct tensor beside(const struct call *call, struct tensor tensor)
{
    tensor.data = call->workspace;
    tensor.shape.c *= call->x_count;
    return tensor;
}

static struct tensor as_tokens(struct tensor tensor, int tokens)
{
    struct shape s = tensor.shape;
    tensor.shape = shape_nhwc(s.n * s.h * s.w, tokens, 1, s.c / tokens);
    return tensor;
}

static const struct token_pool pooled = {.mode = TOKEN_POOL_MEAN};

static enum status mean_forward_cuda(const struct call *call)
{
    struct call copy = *call, pool = *call;
    copy.y = beside(call, call->y);
    struct tensor tokens = as_tokens(copy.y, call->x_count);
    pool.settings = &pooled;
    pool.x = &tokens;
    pool.x_count = 1;
    pool.y = as_tokens(call->y, 1);
    TRY(concat_cuda.forward(&copy));
    return token_pool_cuda.forward(&pool);
}

static enum status mean_backward_cuda(const struct call *call)
{
    struct call copy = *call, pool = *call;
    copy.d_y = beside(call, call->d_y);
    struct tensor tokens = as_tokens(copy.d_y, call->x_count);
    pool.settings = &pooled;
    pool.d_x = &tokens;
    pool.x_count = 1;
    pool.d_y = as_tokens(call->d_y, 1);
    TRY(token_pool_cuda.backward(&pool));
    return concat_cuda.backward(&copy);
}

static const struct op_code cuda = {
    .workspace = mean_workspace,
    .forward = mean_forward_cuda,
    .backward = mean_backward_cuda,
};
#endif

static const struct op_code reference = {.forward = mean_forward, .backward = mean_backward};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 2, {SHAPE(3, 1, 1, 10), SHAPE(3, 1, 1, 10)}},
    {"", 3, {SHAPE(2, 7, 5, 24), SHAPE(2, 7, 5, 24), SHAPE(2, 7, 5, 24)}},
    {"", 2, {SHAPE(1, 1, 1, 1), SHAPE(1, 1, 1, 1)}},
    {0},
};

const struct op mean_op = {
    .name = "mean",
    .help = "Elementwise mean.",
    .min_inputs = 2,
    .max_inputs = OP_MAX_INPUTS,
    .shape = elementwise_same_shape,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cuda = ON_CUDA(cuda),
    .examples = examples,
};
