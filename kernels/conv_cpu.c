#include "conv.h"
#include "product.h"

static enum status conv_prepare(const struct call *call, void **kernel_plan)
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
    return product_prepare(call, &problem, &conv_reference, kernel_plan);
}

const struct op_code conv_cpu = {
    .variants = product_variants,
    .plan_name = product_plan_name,
    .prepare = conv_prepare,
    .release = product_release,
    .workspace = product_workspace,
    .forward = product_run,
    .backward_data = product_run,
    .backward_params = product_run,
};
