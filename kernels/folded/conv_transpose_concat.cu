#include "kernels/folded/conv_transpose_concat_patches.cuh"

extern "C" {
#include "kernels/folded/conv_transpose_concat.h"
}

static struct folded_patches patches_of(const struct call *call)
{
    const struct conv_transpose_concat *s = (const struct conv_transpose_concat *)call->settings;
    const struct tensor *x = &call->x[0], *whole = call->phase == PHASE_FORWARD ? &call->y : &call->d_y;
    struct conv_geometry g = conv_geometry(&s->up.conv, x->shape.c);
    struct folded_patches of = {.phase = call->phase, .dtype = x->dtype};
    of.channels = (int)x->shape.c;
    of.filters = (int)s->up.conv.filters;
    of.rows = (int)(x->shape.n * x->shape.h);
    of.width = (int)x->shape.w;
    for (int i = 0; i < 2; i++) of.kernel[i] = (int)g.kernel[i];
    of.pitch = whole->shape.c;
    of.x = call->phase == PHASE_BACKWARD_DATA ? call->d_x[0].data : x->data;
    int64_t before = s->first || call->x_count == 1 ? 0 : call->x[1].shape.c;
    of.y = (char *)whole->data + before * (int64_t)dtype_bytes(x->dtype);
    bool params = call->phase == PHASE_BACKWARD_PARAMS, bias = call->param_count > 1;
    of.weight = (params ? call->d_params : call->params)[0].data;
    of.bias = bias && call->phase == PHASE_FORWARD ? call->params[1].data : NULL;
    of.sums = bias && params;
    of.d_bias = of.sums ? (float *)call->d_params[1].data : NULL;
    return of;
}

static bool supports(const struct call *call)
{
    if (!conv_transpose_concat_cuda_supports(call)) return false;
    struct folded_patches of = patches_of(call);
    return !call->device || folded_patches_fit(&of, call->device);
}

static size_t workspace(const struct call *call)
{
    struct folded_patches of = patches_of(call);
    return folded_patches_workspace(&of, call->device);
}

/* Computes the transposed convolution's channels, and copies those of the other input. */
static enum status run(const struct call *call)
{
    struct conv_transpose_concat_calls as;
    struct folded_patches of = patches_of(call);
    conv_transpose_concat_divide(call, NULL, &as);
    if (of.x) TRY(folded_patches_run(call, &of));
    if (call->phase == PHASE_BACKWARD_PARAMS || call->x_count == 1) return OK;
    return (call->phase == PHASE_FORWARD ? concat_cuda.forward : concat_cuda.backward)(&as.concat);
}

const struct op_code conv_transpose_concat_cuda = {
    .channels_last = true,
    .plans_together = true,
    .supports = supports,
    .workspace = workspace,
    .forward = run,
    .backward_data = run,
    .backward_params = run,
};
