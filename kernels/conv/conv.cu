/* conv.cu: convolution on CUDA: every call by the kernel plan that the autotuner chooses for its shapes. */
#include "kernels/conv/conv_cuda.cuh"

/* In the order of preference if nothing is timed: specialised kernels, then libraries, cuBLASLt
 * before cuDNN, then general ones. */
const struct algorithm *const conv_cuda_algorithms[] = {
    &conv_by_depthwise, &conv_by_stem, &conv_by_thin, &conv_by_joined, &conv_by_narrow, &conv_by_gemm,
    &conv_by_cudnn, &conv_by_product, &conv_by_rows, &conv_by_direct, &conv_by_gemm_per_image, NULL,
};

/* Workspace, in bytes, that is always granted; more only if no algorithm works without it. */
#define WORKSPACE_FREELY ((size_t)512 << 20)

struct conv_call conv_call_of(const struct call *call)
{
    const struct tensor *x = &call->x[0];
    const struct shape *y = call->y.shape.rank > 0 ? &call->y.shape : &call->d_y.shape;
    int64_t channels = 0;
    for (int i = 0; i < call->x_count; i++) channels += call->x[i].shape.c;
    struct conv_geometry g = conv_geometry((const struct conv_settings *)call->settings, channels);
    struct conv_call p;
    p.call = call, p.phase = call->phase, p.dtype = x->dtype;
    p.n = (int)x->shape.n, p.c = (int)channels, p.k = (int)y->c, p.groups = (int)g.groups;
    p.in[0] = (int)x->shape.h, p.in[1] = (int)x->shape.w, p.out[0] = (int)y->h, p.out[1] = (int)y->w;
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = (int)g.kernel[i];
        p.stride[i] = (int)g.stride[i];
        p.pad[i] = (int)g.pad[i];
        p.dilation[i] = (int)g.dilation[i];
    }
    return p;
}

static size_t images_bytes(const struct call *call)
{
    struct tensor x = {.dtype = call->x[0].dtype, .shape = call->x[0].shape};
    struct tensor y = {.dtype = x.dtype, .shape = call->y.shape.rank > 0 ? call->y.shape : call->d_y.shape};
    return (size_t)tensor_bytes(&x) + (size_t)tensor_bytes(&y);
}

/* In fp32 a second layout of the images is worth its memory; a gradient that has every second pixel may have
 * to be spread. */
static size_t granted(const struct call *call)
{
    const struct tensor *addend = call_operand(call, OPERAND_D_X_ADDEND);
    bool picked = addend && !planned_adds_bias(call) &&
                  shape_count(addend->shape) < shape_count(call->d_x[0].shape);
    return WORKSPACE_FREELY + (call->x[0].dtype == F32 || picked ? images_bytes(call) : 0);
}

/* Without a device: the size of a second layout of both images, within what is granted. */
static size_t workspace_bound(const struct call *call)
{
    size_t bytes = images_bytes(call) / 2;
    return call->x[0].dtype == F32 ? 2 * bytes : bytes < WORKSPACE_FREELY / 8 ? bytes : WORKSPACE_FREELY / 8;
}

static enum status conv_choose(const struct op_code *code, const struct call *call, struct kernel_plan **made)
{
    struct call planned = *call;
    cudnnHandle_t handle;
    *made = call->device ? NULL : kernel_plan_bound(workspace_bound(call));
    if (*made) return OK;
    TRY(cuda_cudnn_borrow(call->device, &handle));
    planned.library = handle;
    enum status status = autotune(code->algorithms, &planned, granted(call), made);
    cuda_cudnn_return(call->device, handle);
    return status;
}

/* For the bias's gradient, which no algorithm computes. */
static size_t conv_workspace(const struct call *call)
{
    bool bias = call->phase == PHASE_BACKWARD_PARAMS && call->param_count > 1 && call->device;
    size_t plan = call->kernel_plan->workspace;
    size_t sums = bias ? columns_workspace(&call->d_y, false) : 0;
    return plan > sums ? plan : sums;
}

static enum status conv_backward_params(const struct call *call)
{
    TRY(planned_call_run(call));
    if (call->param_count < 2 || !call->d_params[1].data) return OK;
    return columns_sum(call, &call->d_y, (float *)call->d_params[1].data, false);
}

/* Each algorithm, depthwise by the share of a thread, and cuDNN's in every layout (conv_cudnn.cu). */
#define IN_LAYOUT(name) \
    "cudnn " name, "cudnn " name "+late", "cudnn " name "+bias", "cudnn " name "+relu", \
    "cudnn " name "+sums", "cudnn " name "+narrow"
static const char *const variants[] = {
    "depthwise 2x4", "depthwise 2x7", "depthwise 2x8", "depthwise 4x4", "stem", "thin", "joined", "narrow",
    "product", "rows", "direct", "gemm", "gemm-per-image", IN_LAYOUT("plain"), IN_LAYOUT("padded4"),
    IN_LAYOUT("padded8"), IN_LAYOUT("folded1x2"), IN_LAYOUT("folded2x2"), "cudnn planar", "cudnn planar+late",
    "cudnn planar+bias", "cudnn planar+relu", NULL,
};

/* Both gradients by conv_thin.cu, where that runs. */
static bool supports(const struct call *call)
{
    bool thin = call->phase == PHASE_BACKWARD && conv_is_thin(call);
    return conv_cuda_supports(call) &&
           (!thin || !call->device || cuda_facts(call->device)->capability >= CONV_THIN_CAPABILITY);
}

const struct op_code conv_cuda = {
    .channels_last = true,
    .plans_together = true,
    .supports = supports,
    .algorithms = conv_cuda_algorithms,
    .choose = conv_choose,
    .variants = variants,
    .workspace = conv_workspace,
    .forward = planned_call_run,
    .backward = planned_call_run,
    .backward_data = planned_call_run,
    .backward_params = conv_backward_params,
};
