/* linear: every output is a weighted sum of all inputs.
 *
 *   y[n, u] = b[u] + sum over c of x[n, c] * w[u, c]
 *
 * x is n, 1, 1, c and y is n, 1, 1, units; w is units, c. With per_pixel x is n, h, w, c and y is n, h, w,
 * units: each pixel stands for an image, as in torch, whose last dimension that is in ConvNeXt. */
#include "kernels/linear/linear.h"

#include "kernels/codes_cuda.h"

bool linear_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                  struct reason *reason)
{
    const struct linear_settings *s = settings;
    if (!s->per_pixel && (x->h != 1 || x->w != 1)) {
        char text[SHAPE_TEXT];
        return because(reason, "linear needs an input of 1x1, not %s; flatten it first",
                       shape_text(*x, text));
    }
    *y = shape_nhwc(x->n, x->h, x->w, s->units);
    return true;
}

static int linear_params(const void *settings, int x_count, const struct shape *x,
                         struct op_param out[OP_MAX_PARAMS])
{
    const struct linear_settings *s = settings;
    struct shape weight = {.rank = 2, .dim = {s->units, x->c, 1, 1}};
    return weight_params(&s->weight, weight, x->c, s->units, out);
}

static unsigned linear_reads(const void *settings, enum phase phase)
{
    return phase == PHASE_BACKWARD_DATA ? READS_PARAMS : READS_X;
}

static enum status linear_forward(const struct call *call)
{
    const struct tensor *x = &call->x[0], *w = &call->params[0];
    const struct tensor *addend = call_operand(call, OPERAND_Y_ADDEND);
    struct tensor y = call->y;
    int64_t channels = x->shape.c, units = y.shape.c;
    for (int64_t n = 0; n < linear_rows(x->shape); n++)
        for (int64_t u = 0; u < units; u++) {
            double sum = call->param_count > 1 ? tensor_get(&call->params[1], u) : 0;
            for (int64_t c = 0; c < channels; c++)
                sum += tensor_get(x, n * channels + c) * tensor_get(w, u * channels + c);
            if (addend) sum += tensor_get(addend, n * units + u);
            tensor_set(&y, n * units + u, sum);
        }
    return OK;
}

static enum status linear_backward_data(const struct call *call)
{
    const struct tensor *w = &call->params[0], *d_y = &call->d_y;
    struct tensor d_x = call->d_x[0];
    if (!d_x.data) return OK;
    int64_t channels = d_x.shape.c, units = d_y->shape.c;
    for (int64_t n = 0; n < linear_rows(d_x.shape); n++)
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0;
            for (int64_t u = 0; u < units; u++)
                sum += tensor_get(d_y, n * units + u) * tensor_get(w, u * channels + c);
            tensor_set(&d_x, n * channels + c, sum);
        }
    return OK;
}

static enum status linear_backward_params(const struct call *call)
{
    const struct tensor *x = &call->x[0], *d_y = &call->d_y;
    struct tensor d_w = call->d_params[0];
    int64_t channels = x->shape.c, units = d_y->shape.c;
    for (int64_t u = 0; u < units; u++)
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0;
            for (int64_t n = 0; n < linear_rows(x->shape); n++)
                sum += tensor_get(x, n * channels + c) * tensor_get(d_y, n * units + u);
            tensor_set(&d_w, u * channels + c, sum);
        }
    if (call->param_count > 1) weight_d_bias(d_y, &call->d_params[1]);
    return OK;
}

bool linear_supports(const struct call *call)
{
    return !call_leaves_bias_out(call) && call_adds_residual(call);
}

bool linear_is_packed(const struct call *call)
{
    int64_t units = ((const struct linear_settings *)call->settings)->units;
    return call->x[0].dtype == F32 || (units % 8 == 0 && call->x[0].shape.c % 8 == 0);
}

/* Where the bias is added behind the product, nothing else can be. */
bool linear_cuda_supports(const struct call *call)
{
    return call_adds_residual(call) && (linear_is_packed(call) || call_is_plain(call));
}

const struct op_code linear_reference = {
    .supports = linear_supports,
    .forward = linear_forward,
    .backward_data = linear_backward_data,
    .backward_params = linear_backward_params,
};

const struct field linear_fields[] = {
    {.name = "units", .type = FIELD_INT, .offset = offsetof(struct linear_settings, units), .min = 1,
     .max = 1 << 24, .help = "Output features."},
    {.name = "per_pixel", .type = FIELD_BOOL, .offset = offsetof(struct linear_settings, per_pixel),
     .initial = "no", .help = "Apply the layer to the channels of each pixel."},
    WEIGHT_FIELDS(struct linear_settings, weight),
    {0},
};

static const struct op_example examples[] = {
    {"units=10", 1, {{.rank = 4, .dim = {3, 1, 1, 84}}}},
    {"units=1 bias=no", 1, {{.rank = 4, .dim = {1, 1, 1, 5}}}},
    {"units=7", 1, {{.rank = 4, .dim = {1, 1, 1, 1}}}},
    {"units=64", 1, {{.rank = 4, .dim = {16, 1, 1, 96}}}},
    {"units=31 bias=no", 1, {{.rank = 4, .dim = {5, 1, 1, 24}}}},
    {"units=24 per_pixel=yes", 1, {{.rank = 4, .dim = {3, 5, 7, 16}}}},
    {0},
};

/* Shapes of many tiles. */
static const struct op_example large[] = {
    {"units=1000", 1, {{.rank = 4, .dim = {64, 1, 1, 512}}}},
    {"units=515", 1, {{.rank = 4, .dim = {67, 1, 1, 333}}}},
    {"units=384 per_pixel=yes", 1, {{.rank = 4, .dim = {8, 28, 28, 96}}}},
    {0},
};

const struct op linear_op = {
    .name = "linear",
    .help = "Fully connected layer.",
    .settings_size = sizeof(struct linear_settings),
    .fields = linear_fields,
    .precision = CLASS_LOW,
    .shape = linear_shape,
    .params = linear_params,
    .reads = linear_reads,
    .reference = &linear_reference,
    .cpu = &linear_cpu,
    .cuda = ON_CUDA(linear_cuda),
    .supports_cuda = linear_cuda_supports,
    .examples = examples,
    .large = large,
};
