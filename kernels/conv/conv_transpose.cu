/* conv_transpose.cu: the algorithms of conv on CUDA. A bias is added to the gradient that y is. */
#include "kernels/conv/conv_cuda.cuh"

static const struct call *call_of_conv(const struct call *call, struct conv_transposed *as)
{
    conv_transposed(call, as);
    if (call->phase != PHASE_FORWARD || call->param_count < 2) return &as->call;
    *call_put(&as->call, OPERAND_D_X_ADDEND) = call->params[1];
    as->call.epilogues[as->call.epilogue_count++] = {EPILOGUE_ADD, OPERAND_D_X_ADDEND};
    return &as->call;
}

static enum status conv_transpose_choose(const struct op_code *code, const struct call *call,
                                         struct kernel_plan **made)
{
    struct conv_transposed as;
    return kernel_plan_make(&conv_cuda, call_of_conv(call, &as), made);
}

static bool sums_bias(const struct call *call)
{
    return call->phase == PHASE_BACKWARD_PARAMS && call->param_count > 1;
}

static size_t conv_transpose_workspace(const struct call *call)
{
    bool bias = sums_bias(call) && call->device;
    size_t plan = call->kernel_plan->workspace;
    size_t sums = bias ? columns_workspace(&call->d_y, false) : 0;
    return plan > sums ? plan : sums;
}

static enum status conv_transpose_run(const struct call *call)
{
    struct conv_transposed as;
    if (call->phase == PHASE_BACKWARD_DATA && !call->d_x[0].data) return OK;
    TRY(planned_call_run(call_of_conv(call, &as)));
    if (!sums_bias(call)) return OK;
    return columns_sum(call, &call->d_y, (float *)call->d_params[1].data, false);
}

static const char *const variants[] = {"product", "rows", "direct", "gemm", "gemm-per-image", "cudnn plain",
                                       "cudnn padded8", NULL};

const struct op_code conv_transpose_cuda = {
    .channels_last = true,
    .plans_together = true,
    .algorithms = conv_cuda_algorithms,
    .choose = conv_transpose_choose,
    .variants = variants,
    .workspace = conv_transpose_workspace,
    .forward = conv_transpose_run,
    .backward_data = conv_transpose_run,
    .backward_params = conv_transpose_run,
};
