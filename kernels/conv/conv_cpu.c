#include "kernels/conv/conv.h"
#include "kernels/support/product.h"

static bool conv_product_make(const struct call *call, struct kernel_plan *plan)
{
    struct conv_geometry g = conv_geometry(call->settings, call->x[0].shape.c);
    const struct onednn_window window = {.stride = {g.stride[0], g.stride[1]},
                                         .pad = {g.pad[0], g.pad[1]},
                                         .dilation = {g.dilation[0], g.dilation[1]}};
    return product_make(call, &window, plan);
}

/* A row of our own is taken where it is faster than the library, or asked for. */
static const struct algorithm native = PRODUCT_ALGORITHM("native", conv_product_make),
                              widened = PRODUCT_ALGORITHM("widened", conv_product_make);
const struct algorithm *const conv_cpu_algorithms[] = {
    &conv_winograd, &conv_shifted,        &conv_depthwise,      &conv_gemm, &conv_gemm_per_image,
    &native,        &widened,             &algorithm_reference, NULL,
};
const char *const conv_cpu_variants[] = {"native",    "widened", "winograd",       "shifted",
                                         "depthwise", "gemm",    "gemm-per-image", NULL};

void conv_cpu_keep_weights(struct kernel_plan *plan)
{
    if (plan->algorithm == &conv_winograd) conv_winograd_keep_weights(plan);
    else if (plan->algorithm && plan->algorithm->run == product_run) product_keep_weights(plan);
}

const struct op_code conv_cpu = {
    .algorithms = conv_cpu_algorithms,
    .variants = conv_cpu_variants,
    .forward = kernel_plan_run,
    .backward_data = kernel_plan_run,
    .backward_params = kernel_plan_run,
};
