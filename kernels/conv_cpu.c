#include <stdlib.h>

#include "base/memory.h"
#include "conv.h"
#include "conv_gemm.h"
#include "conv_shifted.h"
#include "conv_winograd.h"
#include "product.h"

/* A kernel plan: `gemm` alone; or `winograd` and `shifted` for phases that they take, `product` for the
 * others. */
struct conv_cpu_plan {
    struct conv_gemm *gemm;
    struct conv_winograd *winograd;
    struct conv_shifted *shifted;
    void *product;
};

static enum status direct_prepare(const struct call *call, void **product)
{
    const struct shape *x = &call->x[0].shape, *y = &call->y.shape;
    const struct shape *out = y->rank ? y : &call->d_y.shape;
    struct conv_geometry g = conv_geometry(call->settings, x->c);
    struct onednn_problem problem = {
        .bias = call->param_count > 1,
        .n = x->n,
        .c = x->c,
        .k = out->c,
        .input = {x->h, x->w},
        .output = {out->h, out->w},
        .kernel = {g.kernel[0], g.kernel[1]},
        .stride = {g.stride[0], g.stride[1]},
        .pad = {g.pad[0], g.pad[1]},
        .dilation = {g.dilation[0], g.dilation[1]},
        .groups = g.groups,
    };
    return product_prepare(call, &problem, &conv_reference, product);
}

static enum status conv_prepare(const struct call *call, void **kernel_plan)
{
    struct conv_cpu_plan *plan = memory_new(1, sizeof *plan);
    *plan = (struct conv_cpu_plan){
        .gemm = conv_gemm_make(call),
        .winograd = conv_winograd_make(call),
        .shifted = conv_shifted_make(call),
    };
    *kernel_plan = plan;
    return plan->gemm ? OK : direct_prepare(call, &plan->product);
}

static void conv_release(void *kernel_plan)
{
    struct conv_cpu_plan *plan = kernel_plan;
    if (!plan) return;
    conv_gemm_free(plan->gemm);
    conv_winograd_free(plan->winograd);
    conv_shifted_free(plan->shifted);
    product_release(plan->product);
    free(plan);
}

static const struct conv_cpu_plan *plan_of(const struct call *call)
{
    return call->kernel_plan;
}

static struct call direct_call(const struct call *call)
{
    struct call direct = *call;
    direct.kernel_plan = plan_of(call)->product;
    return direct;
}

static size_t conv_workspace(const struct call *call)
{
    const struct conv_cpu_plan *plan = plan_of(call);
    struct call direct = direct_call(call);
    if (conv_winograd_takes(plan->winograd, call->phase))
        return conv_winograd_workspace(plan->winograd, call);
    if (conv_shifted_takes(plan->shifted, call->phase)) return conv_shifted_workspace(plan->shifted, call);
    return plan->gemm ? conv_gemm_workspace(plan->gemm, call) : product_workspace(&direct);
}

static enum status conv_run(const struct call *call)
{
    const struct conv_cpu_plan *plan = plan_of(call);
    struct call direct = direct_call(call);
    if (conv_winograd_takes(plan->winograd, call->phase)) return conv_winograd_run(plan->winograd, call);
    if (conv_shifted_takes(plan->shifted, call->phase)) return conv_shifted_run(plan->shifted, call);
    return plan->gemm ? conv_gemm_run(plan->gemm, call) : product_run(&direct);
}

static const char *conv_plan_name(const struct call *call)
{
    const struct conv_cpu_plan *plan = plan_of(call);
    struct call direct = direct_call(call);
    if (conv_winograd_takes(plan->winograd, call->phase)) return "winograd";
    if (conv_shifted_takes(plan->shifted, call->phase)) return "shifted";
    return plan->gemm ? conv_gemm_name(plan->gemm) : product_plan_name(&direct);
}

static const char *const variants[] = {"native", "widened",        "winograd", "shifted",
                                       "gemm",   "gemm-per-image", NULL};

const struct op_code conv_cpu = {
    .variants = variants,
    .plan_name = conv_plan_name,
    .prepare = conv_prepare,
    .release = conv_release,
    .workspace = conv_workspace,
    .forward = conv_run,
    .backward_data = conv_run,
    .backward_params = conv_run,
};
