/* softmax_cross_entropy: the loss of every image, as torch.nn.CrossEntropyLoss(reduction="none"):
 *
 *     t'[c] = (1 - label_smoothing) * t[c] + label_smoothing / classes   (Szegedy et al. 2015)
 *     y = sum over c of t'[c] * (logsumexp(x) - x[c])
 *
 * with t one at the label and zero elsewhere, or targets of any sum. Backward is that of the mean over the
 * n images of the call, times loss_weight and the loss scale; it is the root, so d_y is not read:
 *     d_x[c] = (softmax(x)[c] * sum(t') - t'[c]) * loss_weight * loss_scale / n */
#include "kernels/loss/softmax_cross_entropy.h"

#include <math.h>
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/loss/loss_targets.h"

static bool softmax_cross_entropy_shape(const void *settings, int x_count, const struct shape *x,
                                        struct shape *y, struct reason *reason)
{
    return targets_shape(x, false, y, reason);
}

static int softmax_cross_entropy_saved(const void *settings, int x_count, const struct tensor *x,
                                       bool training, struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    out[0] = (struct op_saved){"logsumexp", F32, shape_nhwc(x[0].shape.n, 1, 1, 1)};
    return 1;
}

static unsigned softmax_cross_entropy_reads(const void *settings, enum phase phase)
{
    return READS_X | READS_SAVED;
}

static double smoothed(const struct call *call, int64_t i, int64_t c)
{
    const struct softmax_cross_entropy *s = call->settings;
    return target_of(call, i, c, s->label_smoothing);
}

/* log(sum of exp(x - max)) of image i. */
static double log_sum(const struct tensor *x, int64_t i, double *max)
{
    int64_t classes = x->shape.c;
    double sum = 0;
    *max = -INFINITY;
    for (int64_t c = 0; c < classes; c++) {
        double own = tensor_get(x, i * classes + c);
        if (own > *max) *max = own;
    }
    for (int64_t c = 0; c < classes; c++) sum += exp(tensor_get(x, i * classes + c) - *max);
    return log(sum);
}

static enum status softmax_cross_entropy_forward(const struct call *call)
{
    int64_t classes = call->x[0].shape.c, n = call->x[0].shape.n;
#pragma omp parallel for schedule(static) if (n * classes > BLOCK)
    for (int64_t i = 0; i < n; i++) {
        double max, sum = log_sum(&call->x[0], i, &max), loss = 0;
        for (int64_t c = 0; c < classes; c++) {
            double target = smoothed(call, i, c);
            if (target != 0) loss += target * (sum + (max - tensor_get(&call->x[0], i * classes + c)));
        }
        tensor_set(&call->y, i, loss);
        if (call->saved_count) tensor_set(&call->saved[0], i, max + sum);
    }
    return OK;
}

static enum status softmax_cross_entropy_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    int64_t classes = call->x[0].shape.c, n = call->x[0].shape.n;
    double factor = (double)call->loss_weight * (double)*call->loss_scale / (double)n;
#pragma omp parallel for schedule(static) if (n * classes > BLOCK)
    for (int64_t i = 0; i < n; i++) {
        double lse = tensor_get(&call->saved[0], i), sum = 0;
        for (int64_t c = 0; c < classes; c++) sum += smoothed(call, i, c);
        for (int64_t c = 0; c < classes; c++) {
            double softmax = exp(tensor_get(&call->x[0], i * classes + c) - lse);
            tensor_set(&call->d_x[0], i * classes + c, (softmax * sum - smoothed(call, i, c)) * factor);
        }
    }
    return OK;
}

static const struct field fields[] = {
    {.name = "label_smoothing", .type = FIELD_REAL,
     .offset = offsetof(struct softmax_cross_entropy, label_smoothing), .initial = "0", .min = 0, .max = 1,
     .help = "Fraction of the label spread over all classes."},
    {0},
};

static const struct op_code reference = {
    .forward = softmax_cross_entropy_forward,
    .backward = softmax_cross_entropy_backward,
};

#define SHAPE(n_, c_) {.rank = 4, .n = n_, .h = 1, .w = 1, .c = c_}
static const struct op_example examples[] = {
    {"", 2, {SHAPE(3, 10), SHAPE(3, 1)}},
    {"label_smoothing=0.1", 2, {SHAPE(1, 24), SHAPE(1, 1)}},
    {"label_smoothing=0.1", 2, {SHAPE(3, 5), SHAPE(3, 6)}},
    {"", 2, {SHAPE(7, 1100), SHAPE(7, 1)}},
    {0},
};

const struct op softmax_cross_entropy_op = {
    .name = "softmax_cross_entropy",
    .help = "Softmax cross entropy of each image.",
    .settings_size = sizeof(struct softmax_cross_entropy),
    .fields = fields,
    .min_inputs = 2,
    .max_inputs = 2,
    .internal = true,
    .root = true,
    .shape = softmax_cross_entropy_shape,
    .output_dtype = targets_loss_dtype,
    .saved = softmax_cross_entropy_saved,
    .reads = softmax_cross_entropy_reads,
    .no_gradient = targets_no_gradient,
    .reference = &reference,
    .cuda = ON_CUDA(softmax_cross_entropy_cuda),
    .examples = examples,
};
