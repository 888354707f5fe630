/* dropout: in training each element is zero with probability `rate`, else divided by 1 - rate
 * (Srivastava et al. 2014, inverted as usual); in evaluation y = x.
 *
 * Whether an element stays is a function of seed, step, layer and its place in the whole batch
 * (micro-batches of it continue the count), so that the mask is recomputed instead of kept. */
#include "kernels/elementwise/dropout.h"

#include <stddef.h>

#include "base/random.h"
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/elementwise.h"

struct mask {
    struct random random;
    uint64_t threshold;
    uint64_t first;        /* number of the micro-batch's first element in the batch */
    uint64_t group;        /* the last one drawn */
    uint32_t words[4];
};

static struct mask mask_open(const struct call *call, int64_t count)
{
    return (struct mask){
        .random = dropout_stream(call->random, *call->random->step),
        .threshold = dropout_threshold(call->settings),
        .first = dropout_first(call->random, count),
        .group = UINT64_MAX,
    };
}

static bool mask_keeps(struct mask *mask, int64_t i)
{
    uint64_t element = mask->first + (uint64_t)i;
    if (mask->group != element / 4) {
        mask->group = element / 4;
        random_words(&mask->random, mask->group, mask->words);
    }
    return mask->words[element % 4] >= mask->threshold;
}

/* to = from where the mask keeps it, scaled: for y and x, and for d_x and d_y alike. */
static void drop(const struct call *call, const struct tensor *to, const struct tensor *from)
{
    const struct dropout *s = call->settings;
    struct mask mask;
    if (call->training) mask = mask_open(call, shape_count(to->shape));
    for (int64_t i = 0; i < shape_count(to->shape); i++) {
        double value = tensor_get(from, i);
        if (call->training) value = mask_keeps(&mask, i) ? value / (1 - s->rate) : 0;
        tensor_set(to, i, value);
    }
}

static void drop_block(const struct dropout *s, struct mask *mask, const struct tensor *to,
                       const struct tensor *from, int64_t first, int64_t count)
{
    ALIGNED float in[BLOCK], out[BLOCK];
    const float *x = block_load(from, first, count, in);
    float *y = block_open(to, first, out);
    float scale = dropout_scale(s);
    for (int64_t i = 0; i < count; i++) y[i] = mask_keeps(mask, first + i) ? scale * x[i] : 0;
    block_store(to, first, count, y);
}

static void drop_cpu(const struct call *call, const struct tensor *to, const struct tensor *from)
{
    int64_t count = shape_count(to->shape);
#pragma omp parallel for schedule(static) if (count > BLOCK)
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t length = min_count(BLOCK, count - first);
        struct mask mask;
        if (call->training) mask = mask_open(call, count);
        if (call->training) drop_block(call->settings, &mask, to, from, first, length);
        else dtype_convert(to->dtype, block_address(to, first), from->dtype, block_address(from, first),
                           (size_t)length);
    }
}

static const struct field fields[] = {
    {.name = "rate", .type = FIELD_REAL, .offset = offsetof(struct dropout, rate), .initial = "0.5",
     .min = 0, .max = 1, .help = "Probability of zeroing an element."},
    {0},
};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},
    {"rate=0.2", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {"rate=0", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 3}}},
    {"rate=1", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 3}}},
    {0},
};

DROPOUT_OP(dropout, "Dropout.");
