/* token_pool: one vector for each image: its class token, the first, or the mean of the tokens behind the
 * first `prefix`. */
#include <stddef.h>
#include <string.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/tokens/tokens.h"

static bool token_pool_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                             struct reason *reason)
{
    const struct token_pool *s = settings;
    if (s->mode == TOKEN_POOL_MEAN && s->prefix >= token_count(x[0]))
        return because(reason, "prefix=%lld leaves none of %lld tokens", (long long)s->prefix,
                       (long long)token_count(x[0]));
    *y = shape_nhwc(x[0].n, 1, 1, x[0].c);
    return true;
}

/* The tokens that count, and the share of each. */
struct share {
    int64_t first, end;
    double of_each;
};

static struct share share_of(const struct call *call, struct shape x)
{
    const struct token_pool *s = call->settings;
    if (s->mode == TOKEN_POOL_CLASS) return (struct share){0, 1, 1};
    return (struct share){s->prefix, token_count(x), 1 / (double)(token_count(x) - s->prefix)};
}

static enum status token_pool_forward(const struct call *call)
{
    struct shape x = call->x[0].shape;
    struct share share = share_of(call, x);
    for (int64_t i = 0; i < x.n * x.c; i++) {
        double sum = 0;
        for (int64_t t = share.first; t < share.end; t++)
            sum += tensor_get(&call->x[0], (i / x.c * token_count(x) + t) * x.c + i % x.c);
        tensor_set(&call->y, i, sum * share.of_each);
    }
    return OK;
}

static enum status token_pool_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct shape x = call->d_x[0].shape;
    struct share share = share_of(call, x);
    for (int64_t i = 0; i < shape_count(x); i++) {
        int64_t token = i / x.c % token_count(x), image = i / x.c / token_count(x);
        bool counts = token >= share.first && token < share.end;
        double d_y = tensor_get(&call->d_y, image * x.c + i % x.c);
        tensor_set(&call->d_x[0], i, counts ? d_y * share.of_each : 0);
    }
    return OK;
}

static EVERY_MACHINE(void, add_scaled, (float *sum, const float *line, float by, int64_t count),
                     (sum, line, by, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sum[i] += by * line[i];
}

static enum status token_pool_forward_cpu(const struct call *call)
{
    struct shape x = call->x[0].shape;
    struct share share = share_of(call, x);
    int64_t blocks = pieces(x.c, BLOCK);
#pragma omp parallel for schedule(static) if (shape_count(x) > PARALLEL)
    for (int64_t i = 0; i < x.n * blocks; i++) {
        ALIGNED float sum[BLOCK] = {0}, line[BLOCK];
        int64_t image = i / blocks, first = i % blocks * BLOCK, count = min_count(BLOCK, x.c - first);
        for (int64_t t = share.first; t < share.end; t++) {
            int64_t at = (image * token_count(x) + t) * x.c + first;
            add_scaled(sum, block_load(&call->x[0], at, count, line), 1, count);
        }
        for (int64_t c = 0; c < count; c++) sum[c] *= (float)share.of_each;
        dtype_convert(call->y.dtype, block_address(&call->y, image * x.c + first), F32, sum, (size_t)count);
    }
    return OK;
}

static enum status token_pool_backward_cpu(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct shape x = call->d_x[0].shape;
    struct share share = share_of(call, x);
    size_t bytes = dtype_bytes(call->d_x[0].dtype);
#pragma omp parallel for schedule(static) if (shape_count(x) > PARALLEL)
    for (int64_t n = 0; n < x.n; n++) {
        int64_t start = n * token_count(x) * x.c;
        memset(block_address(&call->d_x[0], start), 0, (size_t)(token_count(x) * x.c) * bytes);
        for (int64_t t = share.first; t < share.end; t++)
            for (int64_t first = 0; first < x.c; first += BLOCK) {
                ALIGNED float in[BLOCK], out[BLOCK] = {0};
                int64_t count = min_count(BLOCK, x.c - first);
                add_scaled(out, block_load(&call->d_y, n * x.c + first, count, in), (float)share.of_each,
                           count);
                dtype_convert(call->d_x[0].dtype, block_address(&call->d_x[0], start + t * x.c + first), F32,
                              out, (size_t)count);
            }
    }
    return OK;
}

static const char *const modes[] = {"class", "mean", NULL};
static const struct field fields[] = {
    {.name = "mode", .type = FIELD_CHOICE, .offset = offsetof(struct token_pool, mode), .initial = "class",
     .choices = modes, .help = "class: the first token; mean: the mean of the others."},
    {.name = "prefix", .type = FIELD_INT, .offset = offsetof(struct token_pool, prefix), .initial = "1",
     .min = 0, .max = 65536, .help = "With mode=mean: tokens in front that are left out."},
    {0},
};

static const struct op_code reference = {.forward = token_pool_forward, .backward = token_pool_backward};
static const struct op_code cpu = {.forward = token_pool_forward_cpu, .backward = token_pool_backward_cpu};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 10, .w = 1, .c = 24}}},
    {"mode=mean", 1, {{.rank = 4, .n = 5, .h = 10, .w = 1, .c = 5}}},
    {"mode=mean prefix=5", 1, {{.rank = 4, .n = 2, .h = 8, .w = 3, .c = 1032}}},
    {"", 1, {{.rank = 4, .n = 2, .h = 1, .w = 1, .c = 3}}},
    {0},
};

static const struct op_example large[] = {
    {"", 1, {{.rank = 4, .n = 64, .h = 197, .w = 1, .c = 192}}},
    {"mode=mean", 1, {{.rank = 4, .n = 64, .h = 197, .w = 1, .c = 192}}},
    {0},
};

const struct op token_pool_op = {
    .name = "token_pool",
    .help = "One token for each image: the class token, or a mean.",
    .settings_size = sizeof(struct token_pool),
    .fields = fields,
    .shape = token_pool_shape,
    .reference = &reference,
    .cpu = &cpu,
    .cuda = ON_CUDA(token_pool_cuda),
    .examples = examples,
    .large = large,
};
