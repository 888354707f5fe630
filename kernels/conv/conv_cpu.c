#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/conv_algorithm.h"
#include "kernels/support/product.h"

/* In the order in which they are asked whether they take a phase. */
static const struct conv_algorithm *const algorithms[] = {&conv_winograd, &conv_shifted, &conv_depthwise,
                                                          &conv_gemm, &conv_gemm_per_image};
#define ALGORITHMS ((int)(sizeof algorithms / sizeof *algorithms))

/* A kernel plan. */
struct conv_cpu_plan {
    void *own[ALGORITHMS];     /* NULL: not this algorithm */
    bool asked;                /* to use those that there are, even where they are slower */
    void *product;             /* the library's, for the other phases */
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
    plan->asked = call->variant;
    for (int i = 0; i < ALGORITHMS; i++) {
        const struct conv_algorithm *own = algorithms[i];
        bool wanted = call->variant ? strcmp(call->variant, own->name) == 0 : own->pays != NULL;
        if (wanted) plan->own[i] = own->prepare(call);
    }
    *kernel_plan = plan;
    return direct_prepare(call, &plan->product);
}

static void conv_release(void *kernel_plan)
{
    struct conv_cpu_plan *plan = kernel_plan;
    if (!plan) return;
    for (int i = 0; i < ALGORITHMS; i++)
        if (plan->own[i]) algorithms[i]->release(plan->own[i]);
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

/* The algorithm that takes the call's phase; -1: the library does. */
static int own_of(const struct call *call)
{
    const struct conv_cpu_plan *plan = plan_of(call);
    for (int i = 0; i < ALGORITHMS; i++) {
        if (!plan->own[i] || (algorithms[i]->weights_only && call->phase != PHASE_BACKWARD_PARAMS)) continue;
        if (plan->asked || algorithms[i]->pays(plan->own[i], call->phase)) return i;
    }
    return -1;
}

static size_t conv_workspace(const struct call *call)
{
    int own = own_of(call);
    struct call direct = direct_call(call);
    return own < 0 ? product_workspace(&direct) : algorithms[own]->workspace(plan_of(call)->own[own], call);
}

static enum status conv_run(const struct call *call)
{
    int own = own_of(call);
    struct call direct = direct_call(call);
    return own < 0 ? product_run(&direct) : algorithms[own]->run(plan_of(call)->own[own], call);
}

static const char *conv_plan_name(const struct call *call)
{
    int own = own_of(call);
    struct call direct = direct_call(call);
    return own < 0 ? product_plan_name(&direct) : algorithms[own]->name;
}

static const char *conv_variant_lacks(const char *variant)
{
    for (int i = 0; i < ALGORITHMS; i++)
        if (strcmp(algorithms[i]->name, variant) == 0)
            return algorithms[i]->lacks ? algorithms[i]->lacks() : NULL;
    return NULL;
}

static const char *const variants[] = {"native",    "widened", "winograd",       "shifted",
                                       "depthwise", "gemm",    "gemm-per-image", NULL};

const struct op_code conv_cpu = {
    .variants = variants,
    .plan_name = conv_plan_name,
    .variant_lacks = conv_variant_lacks,
    .prepare = conv_prepare,
    .release = conv_release,
    .workspace = conv_workspace,
    .forward = conv_run,
    .backward_data = conv_run,
    .backward_params = conv_run,
};
