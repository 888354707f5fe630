/* prepend: learned tokens in front of each image's: the class token (Dosovitskiy et al. 2020), registers
 * (Darcet et al. 2023). The input's pixels, row by row, are its tokens.
 *
 *   y[n, t] = token[t] for t < count,   y[n, count + p] = x[n, p]
 *
 * The parameter has timm's and torchvision's shape, 1, count, c, and the layer's name. */
#include <stddef.h>
#include <string.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/tokens/tokens.h"

static bool prepend_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                          struct reason *reason)
{
    const struct prepend *s = settings;
    *y = shape_nhwc(x[0].n, s->count + token_count(x[0]), 1, x[0].c);
    return true;
}

static int prepend_params(const void *settings, int x_count, const struct shape *x,
                          struct op_param out[OP_MAX_PARAMS])
{
    const struct prepend *s = settings;
    struct shape shape = {.rank = 3, .dim = {1, s->count, x[0].c, 1}};
    out[0] = (struct op_param){"", shape, ROLE_BIAS, F32, token_init(&s->init), s->init.std, 0, 0};
    return 1;
}

/* Elements of the learned tokens, and of one image's own. */
struct extent {
    int64_t learned, own;
};

static struct extent extent_of(const struct call *call, struct shape y)
{
    const struct prepend *s = call->settings;
    return (struct extent){s->count * y.c, (y.h - s->count) * y.c};
}

static enum status prepend_forward(const struct call *call)
{
    struct extent e = extent_of(call, call->y.shape);
    const struct tensor *tokens = &call->params[0];
    size_t own = (size_t)e.own * dtype_bytes(call->y.dtype);
#pragma omp parallel for schedule(static) if (call->y.shape.n * e.own > PARALLEL)
    for (int64_t n = 0; n < call->y.shape.n; n++) {
        int64_t at = n * (e.learned + e.own);
        dtype_convert(call->y.dtype, block_address(&call->y, at), tokens->dtype, tokens->data,
                      (size_t)e.learned);
        memcpy(block_address(&call->y, at + e.learned), block_address(&call->x[0], n * e.own), own);
    }
    return OK;
}

static void pass_gradient(const struct call *call)
{
    struct extent e = extent_of(call, call->d_y.shape);
    size_t own = (size_t)e.own * dtype_bytes(call->d_y.dtype);
    if (!call->d_x[0].data) return;
#pragma omp parallel for schedule(static) if (call->d_y.shape.n * e.own > PARALLEL)
    for (int64_t n = 0; n < call->d_y.shape.n; n++)
        memcpy(block_address(&call->d_x[0], n * e.own),
               block_address(&call->d_y, (n + 1) * e.learned + n * e.own), own);
}

static enum status prepend_backward(const struct call *call)
{
    if (call->d_params[0].data) tokens_sum_images(&call->d_y, &call->d_params[0]);
    pass_gradient(call);
    return OK;
}

static enum status prepend_backward_cpu(const struct call *call)
{
    if (call->d_params[0].data) tokens_sum_images_cpu(&call->d_y, &call->d_params[0]);
    pass_gradient(call);
    return OK;
}

static const struct field fields[] = {
    {.name = "count", .type = FIELD_INT, .offset = offsetof(struct prepend, count), .initial = "1", .min = 1,
     .max = 65536, .help = "Learned tokens."},
    TOKEN_INIT_FIELDS(struct prepend, init),
    {0},
};

static const struct op_code reference = {.forward = prepend_forward, .backward = prepend_backward};
static const struct op_code cpu = {.forward = prepend_forward, .backward = prepend_backward_cpu};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 24}}},
    {"count=4 init=zero", 1, {{.rank = 4, .n = 5, .h = 10, .w = 1, .c = 5}}},
    {"init_std=1e-6", 1, {{.rank = 4, .n = 2, .h = 1, .w = 1, .c = 776}}},
    {0},
};

static const struct op_example large[] = {
    {"", 1, {{.rank = 4, .n = 64, .h = 14, .w = 14, .c = 192}}},
    {0},
};

const struct op prepend_op = {
    .name = "prepend",
    .help = "Learned tokens in front of the pixels, which become tokens.",
    .settings_size = sizeof(struct prepend),
    .fields = fields,
    .shape = prepend_shape,
    .params = prepend_params,
    .reference = &reference,
    .cpu = &cpu,
    .cuda = ON_CUDA(prepend_cuda),
    .examples = examples,
    .large = large,
};
