#include "kernels/linear/linear.h"
#include "kernels/support/product.h"

static bool linear_make(const struct call *call, struct kernel_plan *plan)
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
    return product_make(call, &problem, plan);
}

static const struct algorithm native = PRODUCT_ALGORITHM("native", linear_make),
                              widened = PRODUCT_ALGORITHM("widened", linear_make);
static const struct algorithm *const algorithms[] = {&native, &widened, &algorithm_reference, NULL};
static const char *const variants[] = {"native", "widened", NULL};

const struct op_code linear_cpu = {
    .algorithms = algorithms,
    .variants = variants,
    .forward = kernel_plan_run,
    .backward_data = kernel_plan_run,
    .backward_params = kernel_plan_run,
};
