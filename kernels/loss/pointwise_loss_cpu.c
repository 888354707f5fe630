/* pointwise_loss_cpu.c: pointwise_loss in double, one thread per image, in blocks of outputs. */
#include "kernels/loss/pointwise_loss.h"

#include "kernels/cpu.h"

static void pointwise_loss_cpu_forward_image(const struct call *call, int64_t image)
{
    float buffer[BLOCK];
    int64_t outputs = call->x[0].shape.c;
    double loss = 0;
    for (int64_t c = 0; c < outputs; c += BLOCK) {
        int64_t count = min_count(BLOCK, outputs - c);
        const float *x = block_load(&call->x[0], image * outputs + c, count, buffer);
        for (int64_t k = 0; k < count; k++)
            loss += pointwise_value(call->settings, (double)x[k], pointwise_target_of(call, image, c + k));
    }
    tensor_set(&call->y, image, loss / (double)outputs);
}

static void pointwise_loss_cpu_backward_image(const struct call *call, int64_t image)
{
    float in[BLOCK], out[BLOCK];
    int64_t outputs = call->x[0].shape.c, n = call->x[0].shape.n;
    double factor = (double)call->loss_weight * (double)*call->loss_scale / (double)(n * outputs);
    for (int64_t c = 0; c < outputs; c += BLOCK) {
        int64_t count = min_count(BLOCK, outputs - c), first = image * outputs + c;
        const float *x = block_load(&call->x[0], first, count, in);
        float *d_x = block_open(&call->d_x[0], first, out);
        for (int64_t k = 0; k < count; k++)
            d_x[k] = (float)(factor * pointwise_slope(call->settings, (double)x[k],
                                                      pointwise_target_of(call, image, c + k)));
        block_store(&call->d_x[0], first, count, d_x);
    }
}

static enum status pointwise_loss_cpu_forward(const struct call *call)
{
    int64_t n = call->x[0].shape.n;
#pragma omp parallel for schedule(static) if (n * call->x[0].shape.c > BLOCK)
    for (int64_t i = 0; i < n; i++) pointwise_loss_cpu_forward_image(call, i);
    return OK;
}

static enum status pointwise_loss_cpu_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    int64_t n = call->x[0].shape.n;
#pragma omp parallel for schedule(static) if (n * call->x[0].shape.c > BLOCK)
    for (int64_t i = 0; i < n; i++) pointwise_loss_cpu_backward_image(call, i);
    return OK;
}

const struct op_code pointwise_loss_cpu = {
    .forward = pointwise_loss_cpu_forward,
    .backward = pointwise_loss_cpu_backward,
};
