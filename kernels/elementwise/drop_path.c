/* drop_path: in training each image is zero with probability `rate`, else divided by 1 - rate (stochastic
 * depth: Huang et al. 2016; torchvision's in mode "row"); in evaluation y = x.
 *
 * Whether an image stays is told as dropout tells it of elements: by seed, step, layer and its place in the
 * whole batch. */
#include <stddef.h>

#include "base/random.h"
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/dropout.h"
#include "kernels/elementwise/elementwise.h"

/* The factor of an image. */
static double image_factor(const struct call *call, int64_t images, int64_t image)
{
    const struct dropout *s = call->settings;
    if (!call->training) return 1;
    struct random random = dropout_stream(call->random, *call->random->step);
    uint64_t number = dropout_first(call->random, images) + (uint64_t)image;
    uint32_t words[4];
    random_words(&random, number / 4, words);
    return words[number % 4] >= dropout_threshold(s) ? 1 / (1 - s->rate) : 0;
}

static void drop(const struct call *call, const struct tensor *to, const struct tensor *from)
{
    int64_t images = to->shape.n, each = shape_count(to->shape) / images;
    for (int64_t n = 0; n < images; n++) {
        double factor = image_factor(call, images, n);
        for (int64_t i = n * each; i < (n + 1) * each; i++)
            tensor_set(to, i, factor == 0 ? 0 : factor * tensor_get(from, i));
    }
}

static void drop_block(const struct tensor *to, const struct tensor *from, float factor, int64_t first,
                       int64_t count)
{
    ALIGNED float in[BLOCK], out[BLOCK];
    const float *x = block_load(from, first, count, in);
    float *y = block_open(to, first, out);
    for (int64_t i = 0; i < count; i++) y[i] = factor == 0 ? 0 : factor * x[i];
    block_store(to, first, count, y);
}

static void drop_cpu(const struct call *call, const struct tensor *to, const struct tensor *from)
{
    int64_t images = to->shape.n, each = shape_count(to->shape) / images;
    if (!call->training && to->data == from->data) return;
#pragma omp parallel for schedule(static) if (images * each > PARALLEL)
    for (int64_t n = 0; n < images; n++) {
        float factor = (float)image_factor(call, images, n);
        for (int64_t i = n * each; i < (n + 1) * each; i += BLOCK)
            drop_block(to, from, factor, i, min_count(BLOCK, (n + 1) * each - i));
    }
}

static const struct field fields[] = {
    {.name = "rate", .type = FIELD_REAL, .offset = offsetof(struct dropout, rate), .min = 0, .max = 1,
     .help = "Probability of zeroing an image."},
    {0},
};

static const struct op_example examples[] = {
    {"rate=0.5", 1, {{.rank = 4, .n = 9, .h = 7, .w = 7, .c = 5}}},
    {"rate=0.2", 1, {{.rank = 4, .n = 7, .h = 31, .w = 7, .c = 24}}},
    {"rate=0", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 3}}},
    {"rate=1", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 3}}},
    {0},
};

DROPOUT_OP(drop_path, "Stochastic depth: zeroes whole images.");
