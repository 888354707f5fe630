#include "kernels/loss/loss_targets.h"

#include <math.h>

/* Numbers of an image among the targets. */
static int64_t row_of(const struct call *call) { return call->x[1].shape.c; }

double target_of(const struct call *call, int64_t i, int64_t c, double smoothing)
{
    const struct tensor *targets = &call->x[1];
    int64_t outputs = call->x[0].shape.c;
    double own;
    if (targets->dtype == I32) {
        int32_t label = ((const int32_t *)targets->data)[i];
        own = label < 0 || label >= outputs ? NAN : label == c;
    } else {
        own = tensor_get(targets, i * row_of(call) + c);
    }
    return (1 - smoothing) * own + smoothing / (double)outputs;
}

double target_weight(const struct call *call, int64_t i, int64_t c)
{
    int64_t outputs = call->x[0].shape.c, row = row_of(call);
    return row == 2 * outputs + 1 ? tensor_get(&call->x[1], i * row + outputs + 1 + c) : 1;
}

int64_t target_class(const struct call *call, int64_t i)
{
    const struct tensor *targets = &call->x[1];
    int64_t outputs = call->x[0].shape.c;
    double label = targets->dtype == I32 ? ((const int32_t *)targets->data)[i]
                                         : tensor_get(targets, i * row_of(call) + outputs);
    return label >= 0 && label < (double)outputs ? (int64_t)label : -1;
}

bool targets_shape(const struct shape *x, bool weighted, struct shape *y, struct reason *reason)
{
    char outputs[SHAPE_TEXT], targets[SHAPE_TEXT];
    int64_t c = x[1].c, soft = x[0].c + 1;
    if (x[0].h != 1 || x[0].w != 1)
        return because(reason, "the logits have shape %s, not one vector per image",
                       shape_text(x[0], outputs));
    bool fits = c == 1 || c == soft || (weighted && c == soft + x[0].c);
    if (x[1].n != x[0].n || x[1].h != 1 || x[1].w != 1 || !fits)
        return because(reason, "labels of shape %s do not match logits of shape %s",
                       shape_text(x[1], targets), shape_text(x[0], outputs));
    *y = shape_nhwc(x[0].n, 1, 1, 1);
    return true;
}

bool targets_no_gradient(int input) { return input == 1; }

enum dtype targets_loss_dtype(const void *settings, enum dtype input) { return input == F64 ? F64 : F32; }
