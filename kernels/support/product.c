#include "kernels/support/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/support/pixels_cpu.h"

/* How one phase runs. */
struct product_phase {
    bool chosen;
    char name[96];
    struct onednn_step *step;              /* NULL: the reference */
    bool fp32;                             /* others are converted to it in the workspace */
    bool sums_bias;                        /* computed here: oneDNN's code takes several times as long */
    size_t offset[ONEDNN_OPERANDS];        /* of the widened operands */
    size_t workspace;                      /* of widened operands, which precede the step's */
};

struct product {
    struct onednn_problem problem;
    const struct op_code *reference;
    const char *variant;                   /* as requested by call->variant; NULL: the best */
    struct product_phase phases[PHASE_COUNT];
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

/* Whether some element of the kernel meets nothing but padding along an axis: its gradient is zero, which
 * oneDNN 2.6's bf16 code forgets to write where it strides. */
static bool misses_input(const struct onednn_problem *p, int axis)
{
    for (int64_t tap = 0; tap < p->kernel[axis]; tap++) {
        bool met = false;
        for (int64_t out = 0; out < p->output[axis] && !met; out++) {
            int64_t in = out * p->stride[axis] - p->pad[axis] + tap * p->dilation[axis];
            met = in >= 0 && in < p->input[axis];
        }
        if (!met) return true;
    }
    return false;
}

/* oneDNN's bf16 code fills its tiles with 16 channels and filters at least, and arranges gradients
 * for them: for the weight gradient of one channel and few filters fp32 is twice as fast. */
static bool prefers_fp32(const struct onednn_problem *problem, enum phase phase)
{
    if (phase != PHASE_BACKWARD_PARAMS || problem->inner_product) return false;
    bool strided = problem->stride[0] > 1 || problem->stride[1] > 1;
    if (strided && (misses_input(problem, 0) || misses_input(problem, 1))) return true;
    return problem->c == 1 && problem->k <= 16;
}

const char *const product_variants[] = {"native", "widened", NULL};

static bool may_be(const struct product *product, const char *variant)
{
    return !product->variant || strcmp(product->variant, variant) == 0;
}

/* Whether a phase of a convolution is an inner product of each pixel, for which the library's fp32 code is
 * faster, but not for the gradient of more filters than channels. */
static bool is_per_pixel(const struct onednn_problem *p, enum phase phase)
{
    if (p->inner_product || p->groups > 1 || (phase == PHASE_BACKWARD_PARAMS && p->k >= p->c)) return false;
    bool single = p->kernel[0] == 1 && p->kernel[1] == 1, every = p->stride[0] == 1 && p->stride[1] == 1;
    return single && every && p->pad[0] == 0 && p->pad[1] == 0;
}

/* bf16 runs as it is where the CPU and the library can; fp16 and what is left run in fp32. */
static void product_phase_choose(struct product_phase *phase, const struct product *product,
                                 const struct call *call)
{
    enum dtype dtype = call->x[0].dtype;
    phase->chosen = true;
    if (dtype == F64) return;
    bool bf16 = dtype == BF16 && onednn_has_bf16() && !prefers_fp32(&product->problem, call->phase);
    if (bf16 && may_be(product, "native"))
        phase->step = onednn_step_make(&product->problem, call->phase, BF16);
    if (phase->step || !may_be(product, dtype == F32 ? "native" : "widened")) return;
    struct onednn_problem own = product->problem;
    if (is_per_pixel(&own, call->phase)) {
        own.inner_product = true;
        own.n *= own.input[0] * own.input[1];
    }
    phase->sums_bias = own.inner_product && own.bias && call->phase == PHASE_BACKWARD_PARAMS;
    if (phase->sums_bias) own.bias = false;
    phase->step = onednn_step_make(&own, call->phase, F32);
    if (!phase->step) return;
    phase->fp32 = true;
    struct tensor tensors[ONEDNN_OPERANDS];
    operands(call, tensors);
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        if (!is_widened(&tensors[i])) continue;
        phase->offset[i] = phase->workspace;
        phase->workspace += onednn_align((size_t)shape_count(tensors[i].shape) * sizeof(float));
    }
}

/* Phases are prepared as they are first asked for, so that a forward pass alone makes nothing else. */
static struct product_phase *product_phase_of(const struct call *call)
{
    struct product *product = call->kernel_plan;
    struct product_phase *phase = &product->phases[call->phase];
    if (phase->chosen) return phase;
    product_phase_choose(phase, product, call);
    snprintf(phase->name, sizeof phase->name, "%s%s",
             !phase->step ? "reference" : phase->workspace > 0 ? "widened " : "native ",
             phase->step ? onednn_step_name(phase->step) : "");
    return phase;
}

enum status product_prepare(const struct call *call, const struct onednn_problem *problem,
                            const struct op_code *reference, void **kernel_plan)
{
    struct product *product = memory_new(1, sizeof *product);
    product->problem = *problem;
    product->reference = reference;
    product->variant = call->variant;
    *kernel_plan = product;
    return OK;
}

void product_release(void *kernel_plan)
{
    struct product *product = kernel_plan;
    if (!product) return;
    for (int i = 0; i < PHASE_COUNT; i++) onednn_step_free(product->phases[i].step);
    free(product);
}

size_t product_workspace(const struct call *call)
{
    const struct product_phase *phase = product_phase_of(call);
    if (!phase->step) return 0;
    size_t sums = phase->sums_bias ? pixels_bias_workspace(call) : 0;
    size_t product = phase->workspace + onednn_step_workspace(phase->step);
    return sums > product ? sums : product;
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

static enum status reference_run(const struct op_code *reference, const struct call *call)
{
    switch (call->phase) {
    case PHASE_FORWARD: return reference->forward(call);
    case PHASE_BACKWARD_DATA: return reference->backward_data(call);
    case PHASE_BACKWARD_PARAMS: return reference->backward_params(call);
    case PHASE_BACKWARD:
    case PHASE_UPDATE:
    case PHASE_RECOMPUTE:
    case PHASE_COUNT: break;
    }
    return FAILED;
}

enum status product_run(const struct call *call)
{
    const struct product_phase *phase = product_phase_of(call);
    if (call->phase == PHASE_BACKWARD_DATA && !call->d_x[0].data) return OK;
    const struct product *product = call->kernel_plan;
    if (!phase->step) return reference_run(product->reference, call);
    struct tensor tensors[ONEDNN_OPERANDS];
    void *data[ONEDNN_OPERANDS];
    bool widened[ONEDNN_OPERANDS];
    char *workspace = call->workspace;
    operands(call, tensors);
    if (phase->sums_bias) pixels_bias_run(call);
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        const struct tensor *t = &tensors[i];
        widened[i] = phase->fp32 && is_widened(t);
        data[i] = widened[i] ? workspace + phase->offset[i] : t->data;
        if (widened[i] && !is_written(call->phase, i))
            product_convert(F32, data[i], t->dtype, t->data, shape_count(t->shape));
    }
    TRY(onednn_step_run(phase->step, data, workspace ? workspace + phase->workspace : NULL));
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        const struct tensor *t = &tensors[i];
        if (widened[i] && is_written(call->phase, i))
            product_convert(t->dtype, t->data, F32, data[i], shape_count(t->shape));
    }
    return OK;
}

const char *product_plan_name(const struct call *call)
{
    return product_phase_of(call)->name;
}
