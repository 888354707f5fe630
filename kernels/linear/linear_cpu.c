#include "kernels/linear/linear.h"
#include "kernels/support/product.h"

static enum status linear_prepare(const struct call *call, void **kernel_plan)
{
    const struct linear_settings *settings = call->settings;
    struct onednn_problem problem = {
        .inner_product = true,
        .bias = call->param_count > 1,
        .n = linear_rows(call->x[0].shape),
        .c = call->x[0].shape.c,
        .k = settings->units,
        .input = {1, 1},
        .output = {1, 1},
        .kernel = {1, 1},
        .stride = {1, 1},
        .dilation = {1, 1},
        .groups = 1,
    };
    return product_prepare(call, &problem, &linear_reference, kernel_plan);
}

const struct op_code linear_cpu = {
    .variants = product_variants,
    .plan_name = product_plan_name,
    .prepare = linear_prepare,
    .release = product_release,
    .workspace = product_workspace,
    .forward = product_run,
    .backward_data = product_run,
    .backward_params = product_run,
};
