/* position: y = x + position, a learned vector for each token, the same in all images (Dosovitskiy et al.
 * 2020). Tokens are pixels.
 *
 *   d_x = d_y,   d_position[t] = sum over images of d_y[n, t]
 *
 * The parameter has timm's and torchvision's shape, 1, tokens, c, and the layer's name. */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/tokens/tokens.h"

static bool position_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                           struct reason *reason)
{
    const struct position *s = settings;
    if (s->prefix >= token_count(x[0]))
        return because(reason, "prefix=%lld leaves none of %lld tokens for the grid", (long long)s->prefix,
                       (long long)token_count(x[0]));
    *y = x[0];
    return true;
}

static int position_params(const void *settings, int x_count, const struct shape *x,
                           struct op_param out[OP_MAX_PARAMS])
{
    const struct position *s = settings;
    struct shape shape = {.rank = 3, .dim = {1, token_count(x[0]), x[0].c, 1}};
    out[0] = (struct op_param){"", shape, ROLE_BIAS, F32, token_init(&s->init), s->init.std, 0, 0};
    return 1;
}

static enum status position_forward(const struct call *call)
{
    int64_t image = shape_count(call->params[0].shape);
    for (int64_t i = 0; i < shape_count(call->y.shape); i++)
        tensor_set(&call->y, i, tensor_get(&call->x[0], i) + tensor_get(&call->params[0], i % image));
    return OK;
}

static enum status position_backward(const struct call *call)
{
    if (call->d_params[0].data) tokens_sum_images(&call->d_y, &call->d_params[0]);
    for (int64_t i = 0; call->d_x[0].data && i < shape_count(call->d_y.shape); i++)
        tensor_set(&call->d_x[0], i, tensor_get(&call->d_y, i));
    return OK;
}

static EVERY_MACHINE(void, add_lines, (const float *a, const float *b, float *y, int64_t count),
                     (a, b, y, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

static enum status position_forward_cpu(const struct call *call)
{
    int64_t image = shape_count(call->params[0].shape), blocks = pieces(image, BLOCK);
    const float *position = call->params[0].data;
#pragma omp parallel for schedule(static) if (call->y.shape.n * image > PARALLEL)
    for (int64_t block = 0; block < call->y.shape.n * blocks; block++) {
        ALIGNED float in[BLOCK], out[BLOCK];
        int64_t first = block % blocks * BLOCK, count = min_count(BLOCK, image - first);
        int64_t at = block / blocks * image + first;
        float *y = block_open(&call->y, at, out);
        add_lines(block_load(&call->x[0], at, count, in), position + first, y, count);
        block_store(&call->y, at, count, y);
    }
    return OK;
}

static enum status position_backward_cpu(const struct call *call)
{
    const struct tensor *d_x = &call->d_x[0], *d_y = &call->d_y;
    if (call->d_params[0].data) tokens_sum_images_cpu(d_y, &call->d_params[0]);
    if (d_x->data && d_x->data != d_y->data)
        dtype_convert(d_x->dtype, d_x->data, d_y->dtype, d_y->data, (size_t)shape_count(d_y->shape));
    return OK;
}

static const struct field fields[] = {
    {.name = "prefix", .type = FIELD_INT, .offset = offsetof(struct position, prefix), .initial = "0",
     .min = 0, .max = 65536,
     .help = "Tokens in front of those of the image's grid, which alone depend on its size."},
    TOKEN_INIT_FIELDS(struct position, init),
    {0},
};

static const struct op_code reference = {.forward = position_forward, .backward = position_backward};
static const struct op_code cpu = {.forward = position_forward_cpu, .backward = position_backward_cpu};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 24}}},
    {"prefix=1 init=truncated_normal", 1, {{.rank = 4, .n = 5, .h = 10, .w = 1, .c = 5}}},
    {"init=zero", 1, {{.rank = 4, .n = 2, .h = 1, .w = 1, .c = 776}}},
    {0},
};

static const struct op_example large[] = {
    {"prefix=1", 1, {{.rank = 4, .n = 64, .h = 197, .w = 1, .c = 192}}},
    {0},
};

const struct op position_op = {
    .name = "position",
    .help = "Adds a learned position embedding, a vector for each token.",
    .settings_size = sizeof(struct position),
    .fields = fields,
    .shape = position_shape,
    .params = position_params,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &cpu,
    .cuda = ON_CUDA(position_cuda),
    .examples = examples,
    .large = large,
};
