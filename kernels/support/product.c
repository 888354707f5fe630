#include "kernels/support/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/support/pixels_cpu.h"

/* How a call runs. */
struct product {
    struct onednn_step *step;
    bool fp32;                             /* others are converted to it in the workspace */
    bool widens_weights;                   /* which the step then finds in the workspace */
    bool sums_bias;                        /* computed here: oneDNN's code takes several times as long */
    size_t offset[ONEDNN_OPERANDS];        /* of the widened operands */
    size_t widened;                        /* bytes of widened operands, which precede the step's workspace */
};

/* The call's tensors by what they are in its phase; data is NULL where an operand has no part. */
static void operands(const struct call *call, struct tensor out[ONEDNN_OPERANDS])
{
    const struct tensor none = {.data = NULL};
    const struct tensor *params = call->phase == PHASE_BACKWARD_PARAMS ? call->d_params : call->params;
    bool biased = call->param_count > 1 && call->phase != PHASE_BACKWARD_DATA;
    out[ONEDNN_X] = call->phase == PHASE_BACKWARD_DATA ? call->d_x[0] : call->x[0];
    out[ONEDNN_WEIGHT] = params[0];
    out[ONEDNN_BIAS] = biased ? params[1] : none;
    out[ONEDNN_Y] = call->phase == PHASE_FORWARD ? call->y : call->d_y;
}

static bool is_written(enum phase phase, enum onednn_operand operand)
{
    switch (operand) {
    case ONEDNN_X: return phase == PHASE_BACKWARD_DATA;
    case ONEDNN_Y: return phase == PHASE_FORWARD;
    case ONEDNN_WEIGHT:
    case ONEDNN_BIAS: return phase == PHASE_BACKWARD_PARAMS;
    case ONEDNN_OPERANDS: break;
    }
    return false;
}

static bool is_widened(const struct tensor *tensor)
{
    return tensor->shape.rank > 0 && tensor->dtype != F32;
}

/* True if some element of the kernel meets nothing but padding along an axis: its gradient is zero, which
 * oneDNN 2.6's bf16 code forgets to write where it strides. */
static bool misses_input(const struct tensor of[ONEDNN_OPERANDS], const struct onednn_window *w, int axis)
{
    int64_t inputs = of[ONEDNN_X].shape.dim[1 + axis], outputs = of[ONEDNN_Y].shape.dim[1 + axis];
    for (int64_t tap = 0; tap < of[ONEDNN_WEIGHT].shape.dim[2 + axis]; tap++) {
        bool met = false;
        for (int64_t out = 0; out < outputs && !met; out++) {
            int64_t in = out * w->stride[axis] - w->pad[axis] + tap * w->dilation[axis];
            met = in >= 0 && in < inputs;
        }
        if (!met) return true;
    }
    return false;
}

/* oneDNN's bf16 code fills its tiles with 16 channels and filters at least, and arranges gradients
 * for them: for the weight gradient of one channel and few filters fp32 is twice as fast. */
static bool prefers_fp32(const struct tensor of[ONEDNN_OPERANDS], const struct onednn_window *w,
                         enum phase phase)
{
    if (phase != PHASE_BACKWARD_PARAMS || !w) return false;
    bool strided = w->stride[0] > 1 || w->stride[1] > 1;
    if (strided && (misses_input(of, w, 0) || misses_input(of, w, 1))) return true;
    return of[ONEDNN_X].shape.c == 1 && of[ONEDNN_Y].shape.c <= 16;
}

/* True if a phase of a convolution is an inner product of each pixel, for which the library's fp32 code is
 * faster, but not for the gradient of more filters than channels. */
static bool is_per_pixel(const struct tensor of[ONEDNN_OPERANDS], const struct onednn_window *w,
                         enum phase phase)
{
    const int64_t *weight = of[ONEDNN_WEIGHT].shape.dim, channels = of[ONEDNN_X].shape.c;
    if (phase == PHASE_BACKWARD_PARAMS && of[ONEDNN_Y].shape.c >= channels) return false;
    bool single = weight[1] == channels && weight[2] == 1 && weight[3] == 1;
    return single && w->stride[0] == 1 && w->stride[1] == 1 && w->pad[0] == 0 && w->pad[1] == 0;
}

/* The step in fp32. */
static void step_make_fp32(struct tensor of[ONEDNN_OPERANDS], const struct onednn_window *window,
                           enum phase phase, struct product *product)
{
    if (window && is_per_pixel(of, window, phase)) window = NULL;
    product->fp32 = true;
    product->sums_bias = !window && of[ONEDNN_BIAS].shape.rank > 0 && phase == PHASE_BACKWARD_PARAMS;
    if (product->sums_bias) of[ONEDNN_BIAS] = (struct tensor){.data = NULL};
    product->step = onednn_step_make(of, window, phase, F32);
}

static void operands_place(const struct tensor tensors[ONEDNN_OPERANDS], struct product *product)
{
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        if (!product->fp32 || !is_widened(&tensors[i])) continue;
        product->offset[i] = product->widened;
        product->widens_weights = product->widens_weights || i == ONEDNN_WEIGHT;
        product->widened += onednn_align((size_t)shape_count(tensors[i].shape) * sizeof(float));
    }
}

/* bf16 runs as it is where the CPU and the library can; fp16 and what is left run in fp32. */
bool product_make(const struct call *call, const struct onednn_window *window, struct kernel_plan *plan)
{
    enum dtype dtype = call->x[0].dtype;
    struct tensor tensors[ONEDNN_OPERANDS];
    struct product product = {.step = NULL};
    bool native = op_variant_is(plan->name, "native");
    operands(call, tensors);
    bool bf16 = dtype == BF16 && onednn_has_bf16() && !prefers_fp32(tensors, window, call->phase);
    if (native && bf16) product.step = onednn_step_make(tensors, window, call->phase, BF16);
    else if (dtype != F64 && native == (dtype == F32))
        step_make_fp32(tensors, window, call->phase, &product);
    if (!product.step) return false;
    operands_place(tensors, &product);
    size_t sums = product.sums_bias ? pixels_bias_workspace(call) : 0;
    size_t bytes = product.widened + onednn_step_workspace(product.step);
    plan->workspace = sums > bytes ? sums : bytes;
    snprintf(plan->name, sizeof plan->name, "%s %s", native ? "native" : "widened",
             onednn_step_name(product.step));
    plan->state = memory_new(1, sizeof product);
    *(struct product *)plan->state = product;
    return true;
}

void product_release(struct kernel_plan *plan)
{
    onednn_step_free(((struct product *)plan->state)->step);
    free(plan->state);
}

void product_keep_weights(struct kernel_plan *plan)
{
    struct product *product = plan->state;
    if (!product->widens_weights) onednn_step_keep_weights(product->step);
}

/* Elements that are worth a thread. */
#define CHUNK 16384

void product_convert(enum dtype to, void *target, enum dtype from, const void *source, int64_t count)
{
#pragma omp parallel for schedule(static) if (count > CHUNK)
    for (int64_t i = 0; i < count; i += CHUNK) {
        size_t length = (size_t)(count - i < CHUNK ? count - i : CHUNK);
        dtype_convert(to, (char *)target + (size_t)i * dtype_bytes(to), from,
                      (const char *)source + (size_t)i * dtype_bytes(from), length);
    }
}

enum status product_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct product *product = plan->state;
    struct tensor tensors[ONEDNN_OPERANDS];
    void *data[ONEDNN_OPERANDS];
    bool widened[ONEDNN_OPERANDS];
    char *workspace = call->workspace;
    operands(call, tensors);
    if (product->sums_bias) pixels_bias_run(call);
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        const struct tensor *t = &tensors[i];
        widened[i] = product->fp32 && is_widened(t);
        data[i] = widened[i] ? workspace + product->offset[i] : t->data;
        if (widened[i] && !is_written(call->phase, i))
            product_convert(F32, data[i], t->dtype, t->data, shape_count(t->shape));
    }
    TRY(onednn_step_run(product->step, data, workspace ? workspace + product->widened : NULL));
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        const struct tensor *t = &tensors[i];
        if (widened[i] && is_written(call->phase, i))
            product_convert(t->dtype, t->data, F32, data[i], shape_count(t->shape));
    }
    return OK;
}
