#include "kernels/linear/linear.h"
#include "kernels/support/product.h"

static bool linear_make(const struct call *call, struct kernel_plan *plan)
{
    return product_make(call, NULL, plan);
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
