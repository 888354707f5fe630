/* conv_transpose_cpu.c: the algorithms of conv, and the bias, which they know as conv's alone. */
#include "kernels/algorithm.h"
#include "kernels/conv/conv.h"
#include "kernels/support/pixels_cpu.h"

static enum status conv_transpose_choose(const struct op_code *code, const struct call *call,
                                         struct kernel_plan **made)
{
    struct conv_transposed as;
    (void)code;
    return kernel_plan_make(&conv_cpu, conv_transposed(call, &as), made);
}

static size_t conv_transpose_workspace(const struct call *call)
{
    bool bias = call->phase == PHASE_BACKWARD_PARAMS && call->param_count > 1;
    size_t plan = call->kernel_plan->workspace, sums = bias ? pixels_bias_workspace(call) : 0;
    return plan > sums ? plan : sums;
}

static enum status conv_transpose_run(const struct call *call)
{
    struct conv_transposed as;
    if (call->phase == PHASE_BACKWARD_DATA && !call->d_x[0].data) return OK;
    return kernel_plan_run(conv_transposed(call, &as));
}

static void add_bias(const struct tensor *y, const struct tensor *bias)
{
    int64_t channels = y->shape.c, pixels = shape_count(y->shape) / channels;
#pragma omp parallel for schedule(static) if (pixels * channels > PARALLEL)
    for (int64_t pixel = 0; pixel < pixels; pixel++)
        for (int64_t first = 0; first < channels; first += BLOCK) {
            ALIGNED float buffer[BLOCK], line[BLOCK];
            int64_t at = pixel * channels + first, count = min_count(BLOCK, channels - first);
            float *sums = (float *)block_load(y, at, count, buffer);
            pixels_add(block_load(bias, first, count, line), sums, count);
            block_store(y, at, count, sums);
        }
}

static enum status conv_transpose_forward(const struct call *call)
{
    TRY(conv_transpose_run(call));
    if (call->param_count > 1) add_bias(&call->y, &call->params[1]);
    return OK;
}

static enum status conv_transpose_backward_params(const struct call *call)
{
    TRY(conv_transpose_run(call));
    if (call->param_count > 1) pixels_bias_run(call);
    return OK;
}

const struct op_code conv_transpose_cpu = {
    .algorithms = conv_cpu_algorithms,
    .choose = conv_transpose_choose,
    .variants = conv_cpu_variants,
    .workspace = conv_transpose_workspace,
    .forward = conv_transpose_forward,
    .backward_data = conv_transpose_run,
    .backward_params = conv_transpose_backward_params,
};
