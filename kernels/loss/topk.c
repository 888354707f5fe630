/* topk: the rank of each image's true class: how many classes beat it. It is among the top k when
 * its rank is below k.
 *
 *     y = number of classes c with x[c] > x[label], or x[c] = x[label] and c < label
 *
 * NaN logits come last, in order of their index; a label out of range is beaten by all. Targets have the
 * true class. */
#include "kernels/loss/loss_targets.h"

#include <math.h>

#include "kernels/codes_cuda.h"

static enum dtype topk_output_dtype(const void *settings, enum dtype input)
{
    return I32;
}

static bool topk_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                       struct reason *reason)
{
    return targets_shape(x, true, y, reason);
}

static bool topk_beats(double value, int64_t c, double own, int64_t label)
{
    if (isnan(own)) return !isnan(value) || c < label;
    return value > own || (value == own && c < label);
}

static enum status topk_forward(const struct call *call)
{
    int64_t classes = call->x[0].shape.c;
    for (int64_t i = 0; i < call->y.shape.n; i++) {
        int64_t label = target_class(call, i), rank = 0;
        if (label < 0) {
            rank = classes;
        } else {
            double own = tensor_get(&call->x[0], i * classes + label);
            for (int64_t c = 0; c < classes; c++)
                rank += topk_beats(tensor_get(&call->x[0], i * classes + c), c, own, label);
        }
        tensor_set(&call->y, i, (double)rank);
    }
    return OK;
}

static const struct op_code reference = {.forward = topk_forward};

#define SHAPE(n_, c_) {.rank = 4, .n = n_, .h = 1, .w = 1, .c = c_}
static const struct op_example examples[] = {
    {"", 2, {SHAPE(3, 10), SHAPE(3, 1)}},
    {"", 2, {SHAPE(1, 1), SHAPE(1, 1)}},
    {"", 2, {SHAPE(3, 5), SHAPE(3, 6)}},
    {"", 2, {SHAPE(3, 5), SHAPE(3, 11)}},
    {0},
};

const struct op topk_op = {
    .name = "topk",
    .help = "Rank of the true class of each image.",
    .min_inputs = 2,
    .max_inputs = 2,
    .internal = true,
    .shape = topk_shape,
    .output_dtype = topk_output_dtype,
    .no_gradient = targets_no_gradient,
    .reference = &reference,
    .cuda = ON_CUDA(topk_cuda),
    .examples = examples,
};
