/* instancenorm: normalises each channel of each image (Ulyanov, Vedaldi, Lempitsky 2016), as
 * torch.nn.InstanceNorm2d(affine=True): groupnorm with as many groups as channels. */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/norm/groupnorm.h"

static const struct field fields[] = {GROUPNORM_FIELDS, {0}};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 1, {SHAPE(3, 7, 7, 24)}},
    {"eps=1e-3", 1, {SHAPE(2, 5, 7, 5)}},
    {"affine=no", 1, {SHAPE(2, 9, 3, 64)}},
    {"", 1, {SHAPE(1, 3, 2, 2072)}},
    {"", 1, {SHAPE(2, 3, 2, 1337)}},
    {"", 2, {SHAPE(2, 3, 5, 3), SHAPE(2, 3, 5, 3)}},
    {0},
};

static const struct op_example large[] = {
    {"", 1, {SHAPE(4, 96, 96, 32)}},
    {"", 1, {SHAPE(3, 61, 61, 33)}},
    {0},
};

const struct op instancenorm_op = {
    .name = "instancenorm",
    .help = "Instance normalisation: over the pixels of each channel, by image.",
    .settings_size = sizeof(struct groupnorm),
    .fields = fields,
    .shape = elementwise_shape,
    .params = groupnorm_params,
    .saved = groupnorm_saved,
    .reads = groupnorm_reads,
    .in_place = elementwise_in_place,
    .backward_recomputes = true,
    .activates = true,
    .reference = &groupnorm_reference,
    .cpu = &groupnorm_cpu,
    .cuda = ON_CUDA(groupnorm_cuda),
    .supports_cuda = groupnorm_supports,
    .examples = examples,
    .large = large,
};
