/* linear_scale: a linear layer and the factors of its outputs, a layer scale (elementwise/scale.c), as one:
 *
 *   y[n, u] = g[u] (b[u] + sum over c of x[n, c] * w[u, c]) + addend[n, u]
 *
 * As the factors are linear in the weights, code may multiply these by them before the product. Then nothing
 * passes over tensors of y's size for the factors' sake, and the product's result without them, which only
 * their gradient needs, is not kept. The gradients follow from those of the scaled weights v = g w and biases
 * a = g b, which are an ordinary layer's:
 *
 *   d_w[u, c] = g[u] d_v[u, c],   d_b[u] = g[u] d_a[u],
 *   d_g[u] = b[u] d_a[u] + sum over c of w[u, c] d_v[u, c] */
#include "kernels/linear/linear.h"

#include "kernels/codes_cuda.h"

static int linear_scale_params(const void *settings, int x_count, const struct shape *x,
                               struct op_param out[OP_MAX_PARAMS])
{
    const struct linear_settings *s = settings;
    struct shape weight = {.rank = 2, .dim = {s->units, x->c, 1, 1}};
    int count = weight_params(&s->weight, weight, x->c, s->units, out);
    out[count] = (struct op_param){"factor", shape_vector(s->units), ROLE_NORM, F32, INIT_ONE, 0, 0, 0};
    return count + 1;
}

static unsigned linear_scale_reads(const void *settings, enum phase phase)
{
    return phase == PHASE_BACKWARD_DATA ? READS_PARAMS : READS_X | READS_PARAMS;
}

static double factor_at(const struct call *call, int64_t u)
{
    return tensor_get(&call->params[call->param_count - 1], u);
}

/* y without factor and addend, at row n and unit u. */
static double product_at(const struct call *call, int64_t n, int64_t u)
{
    int64_t channels = call->x[0].shape.c;
    double sum = call->param_count > 2 ? tensor_get(&call->params[1], u) : 0;
    for (int64_t c = 0; c < channels; c++)
        sum += tensor_get(&call->x[0], n * channels + c) * tensor_get(&call->params[0], u * channels + c);
    return sum;
}

static enum status linear_scale_forward(const struct call *call)
{
    const struct tensor *addend = call_operand(call, OPERAND_Y_ADDEND);
    int64_t units = call->y.shape.c;
    for (int64_t i = 0; i < shape_count(call->y.shape); i++)
        tensor_set(&call->y, i, factor_at(call, i % units) * product_at(call, i / units, i % units) +
                                    (addend ? tensor_get(addend, i) : 0));
    return OK;
}

static enum status linear_scale_backward_data(const struct call *call)
{
    int64_t channels = call->d_x[0].shape.c, units = call->d_y.shape.c;
    for (int64_t i = 0; call->d_x[0].data && i < shape_count(call->d_x[0].shape); i++) {
        double sum = 0;
        for (int64_t u = 0; u < units; u++)
            sum += tensor_get(&call->d_y, i / channels * units + u) * factor_at(call, u) *
                   tensor_get(&call->params[0], u * channels + i % channels);
        tensor_set(&call->d_x[0], i, sum);
    }
    return OK;
}

static enum status linear_scale_backward_params(const struct call *call)
{
    const struct tensor *x = &call->x[0], *d_y = &call->d_y;
    int64_t channels = x->shape.c, units = d_y->shape.c, rows = linear_rows(x->shape);
    for (int64_t i = 0; i < units * channels; i++) {
        double sum = 0;
        for (int64_t n = 0; n < rows; n++)
            sum += tensor_get(x, n * channels + i % channels) * tensor_get(d_y, n * units + i / channels);
        tensor_set(&call->d_params[0], i, factor_at(call, i / channels) * sum);
    }
    for (int64_t u = 0; u < units; u++) {
        double sum = 0, product = 0;
        for (int64_t n = 0; n < rows; n++) {
            sum += tensor_get(d_y, n * units + u);
            product += tensor_get(d_y, n * units + u) * product_at(call, n, u);
        }
        if (call->param_count > 2) tensor_set(&call->d_params[1], u, factor_at(call, u) * sum);
        tensor_set(&call->d_params[call->param_count - 1], u, product);
    }
    return OK;
}

bool linear_scale_cuda_supports(const struct call *call)
{
    return linear_is_packed(call) && linear_supports(call);
}

static const struct op_code reference = {
    .supports = linear_supports,
    .forward = linear_scale_forward,
    .backward_data = linear_scale_backward_data,
    .backward_params = linear_scale_backward_params,
};

static const struct op_example examples[] = {
    {"units=16", 1, {{.rank = 4, .dim = {5, 1, 1, 24}}}},
    {"units=24 per_pixel=yes", 1, {{.rank = 4, .dim = {3, 5, 7, 16}}}},
    {"units=40 per_pixel=yes bias=no", 1, {{.rank = 4, .dim = {2, 4, 4, 8}}}},
    {0},
};

/* Shapes of many tiles. */
static const struct op_example large[] = {
    {"units=96 per_pixel=yes", 1, {{.rank = 4, .dim = {8, 28, 28, 384}}}},
    {0},
};

const struct op linear_scale_op = {
    .name = "linear_scale",
    .help = "Fully connected layer whose outputs are multiplied by learned factors (layer scale).",
    .settings_size = sizeof(struct linear_settings),
    .fields = linear_fields,
    .precision = CLASS_LOW,
    .internal = true,
    .shape = linear_shape,
    .params = linear_scale_params,
    .reads = linear_scale_reads,
    .rounds_factors = true,
    .reference = &reference,
    .cuda = ON_CUDA(linear_scale_cuda),
    .supports_cuda = linear_scale_cuda_supports,
    .examples = examples,
    .large = large,
};
