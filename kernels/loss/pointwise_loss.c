/* pointwise_loss: the mean over an image's outputs of a loss of each, as torch's with reduction="none" and
 * mean(dim=1):
 *
 *     bce     -(w t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x)))    BCEWithLogitsLoss(pos_weight=w)
 *     mse     (x - t)^2                                               MSELoss
 *     l1      |x - t|                                                 L1Loss
 *     huber   (x - t)^2 / 2 below delta, delta (|x - t| - delta / 2)  HuberLoss
 *
 * with t one at the label and zero elsewhere, smoothed as in softmax_cross_entropy, or targets; w is one, or
 * comes with the targets. Backward is that of the mean over the n images of the call, times loss_weight and
 * the loss scale; it is the root, so d_y is not read:
 *     d_x[c] = slope * loss_weight * loss_scale / (n * outputs) */
#include "kernels/loss/pointwise_loss.h"

#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/loss/loss_targets.h"

static bool pointwise_loss_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                 struct reason *reason)
{
    return targets_shape(x, true, y, reason);
}

static struct pointwise_target pointwise_target_of(const struct call *call, int64_t i, int64_t c)
{
    const struct pointwise_loss *s = call->settings;
    return (struct pointwise_target){target_of(call, i, c, s->label_smoothing), target_weight(call, i, c)};
}

static enum status pointwise_loss_forward(const struct call *call)
{
    int64_t outputs = call->x[0].shape.c, n = call->x[0].shape.n;
#pragma omp parallel for schedule(static) if (n * outputs > BLOCK)
    for (int64_t i = 0; i < n; i++) {
        double loss = 0;
        for (int64_t c = 0; c < outputs; c++)
            loss += pointwise_value(call->settings, tensor_get(&call->x[0], i * outputs + c),
                                    pointwise_target_of(call, i, c));
        tensor_set(&call->y, i, loss / (double)outputs);
    }
    return OK;
}

static enum status pointwise_loss_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    int64_t outputs = call->x[0].shape.c, n = call->x[0].shape.n;
    double factor = (double)call->loss_weight * (double)*call->loss_scale / (double)(n * outputs);
#pragma omp parallel for schedule(static) if (n * outputs > BLOCK)
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < outputs; c++) {
            int64_t k = i * outputs + c;
            double slope = pointwise_slope(call->settings, tensor_get(&call->x[0], k),
                                           pointwise_target_of(call, i, c));
            tensor_set(&call->d_x[0], k, slope * factor);
        }
    return OK;
}

static const char *const kinds[] = {"bce", "mse", "l1", "huber", NULL};
#define AT(member) .offset = offsetof(struct pointwise_loss, member)
static const struct field fields[] = {
    {.name = "kind", .type = FIELD_CHOICE, AT(kind), .initial = "bce", .choices = kinds,
     .help = "The loss of an output."},
    {.name = "delta", .type = FIELD_REAL, AT(delta), .initial = "1", .min = 1e-6, .max = 1e6,
     .help = "huber: the error from which on the loss is linear."},
    {.name = "label_smoothing", .type = FIELD_REAL, AT(label_smoothing), .initial = "0", .min = 0, .max = 1,
     .help = "Fraction of the label spread over all outputs."},
    {0},
};

static const struct op_code reference = {
    .forward = pointwise_loss_forward,
    .backward = pointwise_loss_backward,
};

#define SHAPE(n_, c_) {.rank = 4, .n = n_, .h = 1, .w = 1, .c = c_}
static const struct op_example examples[] = {
    {"", 2, {SHAPE(3, 10), SHAPE(3, 1)}},
    {"label_smoothing=0.1", 2, {SHAPE(1, 24), SHAPE(1, 1)}},
    {"", 2, {SHAPE(3, 5), SHAPE(3, 6)}},
    {"", 2, {SHAPE(3, 5), SHAPE(3, 11)}},
    {"", 2, {SHAPE(7, 1100), SHAPE(7, 1)}},
    {"kind=mse", 2, {SHAPE(70, 1), SHAPE(70, 2)}},
    {"kind=mse", 2, {SHAPE(3, 5), SHAPE(3, 6)}},
    {"kind=l1", 2, {SHAPE(70, 1), SHAPE(70, 2)}},
    {"kind=huber", 2, {SHAPE(70, 1), SHAPE(70, 2)}},
    {"kind=huber delta=0.25", 2, {SHAPE(3, 5), SHAPE(3, 6)}},
    {0},
};

const struct op pointwise_loss_op = {
    .name = "pointwise_loss",
    .help = "Mean loss of an image's outputs: binary cross entropy, squared, absolute or Huber's.",
    .settings_size = sizeof(struct pointwise_loss),
    .fields = fields,
    .min_inputs = 2,
    .max_inputs = 2,
    .internal = true,
    .root = true,
    .shape = pointwise_loss_shape,
    .output_dtype = targets_loss_dtype,
    .reads = elementwise_reads_x,
    .no_gradient = targets_no_gradient,
    .reference = &reference,
    .cuda = ON_CUDA(pointwise_loss_cuda),
    .examples = examples,
};
