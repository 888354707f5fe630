/* conv.cu: convolution on CUDA: every phase by the kernel plan that the autotuner chooses for its shapes. */
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/elementwise/elementwise.cuh"
#include "kernels/support/join.cuh"
#include "kernels/support/phase_plans.cuh"

extern "C" {
#include "base/memory.h"
}

/* In the order of preference if nothing is timed: specialised kernels, then libraries, cuBLASLt
 * before cuDNN, then general ones. */
static const struct conv_algorithm *const algorithms[] = {
    &conv_by_depthwise, &conv_by_stem, &conv_by_joined, &conv_by_gemm, &conv_by_cudnn,
    &conv_by_product, &conv_by_direct, &conv_by_gemm_per_image,
};
#define PROBLEM_TEXT 256

/* Workspace, in bytes, that is always granted; more only if no algorithm works without it. */
#define WORKSPACE_FREELY ((size_t)512 << 20)

static struct conv_problem conv_problem_of(const struct call *call, enum phase phase)
{
    const struct tensor *x = call->x[0].shape.rank > 0 ? &call->x[0] : &call->d_x[0];
    const struct shape *y = call->y.shape.rank > 0 ? &call->y.shape : &call->d_y.shape;
    struct conv_geometry g = conv_geometry((const struct conv_settings *)call->settings, x->shape.c);
    const struct tensor *addend = call_operand(call, OPERAND_D_X_ADDEND);
    bool joins = phase == PHASE_BACKWARD_DATA && addend;
    struct conv_problem p = {
        .phase = phase, .dtype = x->dtype, .bias = phase == PHASE_FORWARD && call->param_count > 1,
        .relu = phase == PHASE_FORWARD && call_epilogue(call, EPILOGUE_RELU),
        .sums = phase == PHASE_FORWARD && call_operand(call, OPERAND_Y_MOMENTS),
        .joins = joins, .picks = joins && shape_count(addend->shape) < shape_count(x->shape),
        .clips = call_epilogue(call, EPILOGUE_X_RELU6) != NULL,
        .tf32 = call->tf32, .deterministic = call->deterministic,
        .n = (int)x->shape.n, .c = (int)x->shape.c, .k = (int)y->c, .groups = (int)g.groups,
        .in = {(int)x->shape.h, (int)x->shape.w}, .out = {(int)y->h, (int)y->w},
    };
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = (int)g.kernel[i];
        p.stride[i] = (int)g.stride[i];
        p.pad[i] = (int)g.pad[i];
        p.dilation[i] = (int)g.dilation[i];
    }
    return p;
}

static const char *conv_phase_name(enum phase phase)
{
    switch (phase) {
    case PHASE_FORWARD: return "forward";
    case PHASE_BACKWARD_DATA: return "data";
    case PHASE_BACKWARD_PARAMS: return "weights";
    case PHASE_BACKWARD: return "gradients";
    case PHASE_UPDATE:
    case PHASE_RECOMPUTE:
    case PHASE_COUNT: break;
    }
    return "none";
}

/* "conv forward fp16 256x56x56x64 to 64, kernel 3x3 stride 1x1 pad 1x1". */
static void conv_problem_print(const struct conv_problem *p, char text[PROBLEM_TEXT])
{
    snprintf(
        text, PROBLEM_TEXT,
        "conv %s %s%s%s%s%s%s%s%s%s %dx%dx%dx%d to %d, "
        "kernel %dx%d stride %dx%d pad %dx%d dilation %dx%d groups %d",
        conv_phase_name(p->phase), dtype_table[p->dtype].name, p->tf32 && p->dtype == F32 ? " tf32" : "",
        p->deterministic ? " deterministic" : "", p->bias ? " bias" : "", p->relu ? " relu" : "",
        p->sums ? " sums" : "", p->joins ? " joined" : "", p->picks ? " picked" : "",
        p->clips ? " clipped" : "", p->n, p->in[0], p->in[1], p->c, p->k, p->kernel[0], p->kernel[1],
        p->stride[0], p->stride[1], p->pad[0], p->pad[1], p->dilation[0], p->dilation[1], p->groups);
}

/* For sums that are computed after the algorithm, in the same workspace. */
static size_t extra_workspace(const struct conv_plan *plan)
{
    const struct conv_problem *p = &plan->problem;
    struct tensor x = {.dtype = p->dtype, .shape = shape_nhwc(p->n, p->in[0], p->in[1], p->c)};
    if (p->joins && !plan->joins)
        return workspace_align(join_workspace(&x)) + (p->picks ? (size_t)tensor_bytes(&x) : 0);
    if (p->joins) return 0;
    bool biases = p->phase == PHASE_BACKWARD_PARAMS, sums = p->sums && !plan->gives_sums;
    return biases || sums ? conv_sums_workspace((int64_t)p->n * p->out[0] * p->out[1], p->k, sums) : 0;
}

/* Adds another gradient to d_x[0] as the algorithm wrote it. */
static enum status conv_join(const struct conv_problem *p, const struct call *call)
{
    static const struct batchnorm relu = {.activation = ACTIVATION_RELU};
    struct join join = {.d_y = call->d_x[0], .d_y_more = call_data(call, OPERAND_D_X_ADDEND),
                        .mask = (const uint8_t *)call_data(call, OPERAND_MASK), .dz = call->d_x[0].data,
                        .sums = (float *)call_data(call, OPERAND_D_X_SUMS)};
    if (p->picks) {
        struct conv_problem spread = *p;
        void *whole = (char *)call->workspace + workspace_align(join_workspace(&call->d_x[0]));
        for (int i = 0; i < 2; i++) spread.stride[i] = 2, spread.out[i] = (p->in[i] + 1) / 2;
        TRY(conv_copy_picked(&spread, call, call_data(call, OPERAND_D_X_ADDEND), whole));
        join.d_y_more = whole;
    }
    return join_run(call, &relu, &join, (float *)call->workspace);
}

static enum status conv_relu(const struct call *call)
{
    return map_tensor(call, &call->y, &call->y, [] __device__(float y) { return y <= 0 ? 0 : y; });
}

/* Runs the algorithm, and then what it does not do itself. */
static enum status conv_plan_run(const struct conv_plan *plan, const struct call *call,
                                 const struct conv_tools *tools)
{
    TRY(plan->algorithm->run(plan, call, tools));
    if (plan->problem.joins) return plan->joins ? OK : conv_join(&plan->problem, call);
    if (plan->problem.relu && !plan->applies_relu) TRY(conv_relu(call));
    if (plan->problem.phase == PHASE_BACKWARD_PARAMS && call->param_count > 1 && call->d_params[1].data)
        return conv_sums(call, &call->d_y, (float *)call->d_params[1].data, false);
    if (!plan->problem.sums || plan->gives_sums) return OK;
    return conv_sums(call, &call->y, (float *)call_data(call, OPERAND_Y_MOMENTS), true);
}

/* ---- What the autotuner asks ---- */

struct conv_context {
    const struct conv_problem *problem;
    struct conv_tools tools;
};

static int conv_candidates(const void *self, int most, char names[][CANDIDATE_NAME])
{
    const struct conv_context *context = (const struct conv_context *)self;
    const struct conv_problem *p = context->problem;
    int count = 0;
    bool ours = p->phase == PHASE_BACKWARD || p->clips;
    for (const struct conv_algorithm *algorithm : algorithms)
        if ((!ours || algorithm == &conv_by_depthwise) &&
            (!context->tools.only || candidate_is(context->tools.only, algorithm->name)))
            count += algorithm->candidates(context->problem, &context->tools, most - count, names + count);
    return count;
}

static const struct conv_algorithm *algorithm_of(const char *name)
{
    size_t length = strcspn(name, " ");
    for (const struct conv_algorithm *algorithm : algorithms)
        if (strlen(algorithm->name) == length && strncmp(algorithm->name, name, length) == 0)
            return algorithm;
    return NULL;
}

static void *conv_plan_make(const void *self, const char *name, size_t *workspace)
{
    const struct conv_context *context = (const struct conv_context *)self;
    const struct conv_algorithm *algorithm = algorithm_of(name);
    if (!algorithm) return NULL;
    struct conv_plan *plan = (struct conv_plan *)memory_new(1, sizeof *plan);
    *plan = (struct conv_plan){.algorithm = algorithm, .problem = *context->problem};
    snprintf(plan->name, sizeof plan->name, "%s", name);
    if (!algorithm->make(plan, &context->tools)) {
        free(plan);
        return NULL;
    }
    size_t extra = extra_workspace(plan);
    if (extra > plan->workspace) plan->workspace = extra;
    *workspace = plan->workspace;
    return plan;
}

static void conv_plan_free(void *made)
{
    struct conv_plan *plan = (struct conv_plan *)made;
    if (plan) plan->algorithm->release(plan);
    free(plan);
}

static enum status conv_plan_try(const void *self, void *plan, const struct call *call)
{
    const struct conv_context *context = (const struct conv_context *)self;
    cudaStream_t current;
    if ((cudnn()->cudnnGetStream(context->tools.cudnn, &current) || current != stream_of(call)) &&
        cudnn()->cudnnSetStream(context->tools.cudnn, stream_of(call)))
        return NO_DEVICE;
    return conv_plan_run((const struct conv_plan *)plan, call, &context->tools);
}

static const struct autotune_functions functions = {
    .candidates = conv_candidates,
    .fallback = "direct",
    .plan_make = conv_plan_make,
    .plan_free = conv_plan_free,
    .plan_try = conv_plan_try,
};

/* ---- Choosing ---- */

static size_t operands_bytes(const struct conv_problem *p)
{
    return ((size_t)p->n * p->in[0] * p->in[1] * p->c + (size_t)p->n * p->out[0] * p->out[1] * p->k) *
           dtype_bytes(p->dtype);
}

/* From the GPU, the libraries and the problem; the caller frees it. */
static char *conv_key_new(const struct conv_problem *p, const struct device *device)
{
    char text[PROBLEM_TEXT];
    conv_problem_print(p, text);
    return text_format("%s, cuDNN %zu, cuBLAS %zu, %s", cuda_facts(device)->name, cudnn()->cudnnGetVersion(),
                       cublaslt()->cublasLtGetVersion(), text);
}

/* In fp32 a second layout of the operands is worth its memory; what is picked may have to be spread. */
static enum status conv_plan_choose(const struct conv_context *context, void **plan)
{
    const struct conv_problem *p = context->problem;
    struct device *device = context->tools.device;
    char *key = conv_key_new(p, device);
    struct autotune_problem problem = {
        .functions = &functions, .self = context, .device = device, .key = key,
        .only = context->tools.only, .timed = context->tools.timed,
        .deterministic = p->deterministic,
        .workspace_limit = WORKSPACE_FREELY + (p->dtype == F32 || p->picks ? operands_bytes(p) : 0),
        .phase = p->phase, .dtype = p->dtype, .x = shape_nhwc(p->n, p->in[0], p->in[1], p->c),
        .y = shape_nhwc(p->n, p->out[0], p->out[1], p->k),
        .weight = {.rank = 4, .dim = {p->k, p->c / p->groups, p->kernel[0], p->kernel[1]}},
        .bias = p->bias, .sums = p->sums, .joins = p->joins,
    };
    enum status status = autotune(&problem, plan);
    if (status == OK && !*plan && !context->tools.only)
        status = fail(FAILED, "%s: no algorithm supports it", key);
    free(key);
    return status;
}

static enum status conv_plan_open(const struct conv_problem *p, const struct call *call,
                                  struct conv_plan **plan)
{
    struct conv_context context = {.problem = p, .tools = {.device = call->device}};
    void *made = NULL;
    context.tools.only = call->variant;
    context.tools.timed = call->timed;
    TRY(cuda_cudnn_borrow(call->device, &context.tools.cudnn));
    enum status status = cuda_cublaslt(call->device, &context.tools.cublaslt);
    if (status == OK && context.tools.only) status = conv_plan_choose(&context, &made);
    context.tools.only = NULL;
    if (status == OK && !made) status = conv_plan_choose(&context, &made);
    cuda_cudnn_return(call->device, context.tools.cudnn);
    *plan = (struct conv_plan *)made;
    if (made) (*plan)->trusted = true;
    return status;
}

/* Without a device: the size of a second layout of both images, within what is granted. */
static size_t workspace_bound(const struct conv_problem *p)
{
    size_t bytes = operands_bytes(p) / 2;
    return p->dtype == F32 ? 2 * bytes : bytes < WORKSPACE_FREELY / 8 ? bytes : WORKSPACE_FREELY / 8;
}

static enum status conv_phase_choose(const struct call *call, enum phase phase, struct phase_plan *made)
{
    struct conv_problem p = conv_problem_of(call, phase);
    struct conv_plan *plan = NULL;
    if (call->device) TRY(conv_plan_open(&p, call, &plan));
    made->plan = plan;
    made->workspace = plan ? plan->workspace : workspace_bound(&p);
    return OK;
}

static enum status conv_prepare(const struct call *call, void **kernel_plan)
{
    static const struct phase_plan_functions plans = {conv_phase_choose, conv_plan_free};
    return phase_plans_prepare(&plans, call, kernel_plan);
}

static size_t conv_workspace(const struct call *call)
{
    const struct phase_plan *made;
    return phase_plan_of(call, &made) == OK ? made->workspace : 0;
}

static enum status conv_run(const struct call *call)
{
    const struct phase_plan *made;
    struct conv_tools tools = {.device = call->device};
    TRY(phase_plan_of(call, &made));
    TRY(cuda_cudnn(call->device, call->stream, &tools.cudnn));
    TRY(cuda_cublaslt(call->device, &tools.cublaslt));
    return conv_plan_run((const struct conv_plan *)made->plan, call, &tools);
}

static enum status conv_backward_data(const struct call *call)
{
    return call->d_x[0].data ? conv_run(call) : OK;
}

static const char *conv_plan_name(const struct call *call)
{
    const struct phase_plan *made;
    return phase_plan_of(call, &made) == OK ? ((const struct conv_plan *)made->plan)->name : "";
}

/* Each algorithm, depthwise by the share of a thread, and cuDNN's in every layout (conv_cudnn.cu). */
#define IN_LAYOUT(name) \
    "cudnn " name, "cudnn " name "+late", "cudnn " name "+bias", "cudnn " name "+relu", \
    "cudnn " name "+sums", "cudnn " name "+narrow"
static const char *const variants[] = {
    "depthwise 2x4", "depthwise 2x7", "depthwise 2x8", "depthwise 4x4", "stem", "joined", "product", "direct",
    "gemm", "gemm-per-image", IN_LAYOUT("plain"), IN_LAYOUT("padded4"), IN_LAYOUT("padded8"),
    IN_LAYOUT("folded1x2"), IN_LAYOUT("folded2x2"), "cudnn planar", "cudnn planar+late",
    "cudnn planar+bias", "cudnn planar+relu", NULL,
};

const struct op_code conv_cuda = {
    .channels_last = true,
    .prepare_together = true,
    .supports = conv_cuda_supports,
    .variants = variants,
    .plan_name = conv_plan_name,
    .prepare = conv_prepare,
    .release = phase_plans_release,
    .workspace = conv_workspace,
    .forward = conv_run,
    .backward = conv_run,
    .backward_data = conv_backward_data,
    .backward_params = conv_run,
};
