/* channel_shuffle: the channels of `groups` groups by turns, one of each (Zhang, Zhou, Lin, Sun 2018). */
#include "kernels/shape/channel_shuffle.h"

#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/elementwise.h"

static bool channel_shuffle_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                  struct reason *reason)
{
    const struct channel_shuffle *s = settings;
    if (x[0].c % s->groups != 0)
        return because(reason, "%lld channels are not %lld groups of one size", (long long)x[0].c,
                       (long long)s->groups);
    *y = x[0];
    return true;
}

/* Backward puts the channels back. */
static int64_t groups_of(const struct call *call)
{
    int64_t groups = ((const struct channel_shuffle *)call->settings)->groups;
    return call->phase == PHASE_BACKWARD ? call->d_y.shape.c / groups : groups;
}

/* One pixel. */
#define SHUFFLE(type)                                                                                    \
    for (int64_t k = 0; k < each; k++)                                                                   \
        for (int64_t j = 0; j < groups; j++)                                                             \
            ((type *)to->data + first)[k * groups + j] = ((const type *)from->data + first)[j * each + k];

static void shuffle_pixel(const struct tensor *to, const struct tensor *from, int64_t groups, int64_t first)
{
    int64_t each = to->shape.c / groups;
    switch (dtype_bytes(to->dtype)) {
    case 2: SHUFFLE(uint16_t) return;
    case 4: SHUFFLE(float) return;
    default: SHUFFLE(double)
    }
}

static void shuffle(const struct call *call, const struct tensor *to, const struct tensor *from)
{
    int64_t channels = to->shape.c, count = shape_count(to->shape), groups = groups_of(call);
#pragma omp parallel for schedule(static) if (count > PARALLEL)
    for (int64_t first = 0; first < count; first += channels) shuffle_pixel(to, from, groups, first);
}

static const struct field fields[] = {
    {.name = "groups", .type = FIELD_INT, .offset = offsetof(struct channel_shuffle, groups), .min = 1,
     .max = 1048576, .help = "Number of groups; it divides the channels."},
    {0},
};

MAP_CODE(reference, shuffle)

static const struct op_example examples[] = {
    {"groups=2", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 24}}},
    {"groups=3", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 15}}},
    {"groups=4", 1, {{.rank = 4, .n = 2, .h = 5, .w = 5, .c = 16}}},
    {"groups=1", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op channel_shuffle_op = {
    .name = "channel_shuffle",
    .help = "Channels of all groups by turns.",
    .settings_size = sizeof(struct channel_shuffle),
    .fields = fields,
    .shape = channel_shuffle_shape,
    .reference = &reference,
    .cuda = ON_CUDA(channel_shuffle_cuda),
    .examples = examples,
};
