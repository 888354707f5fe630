/* softmax_cross_entropy_cpu.c: softmax_cross_entropy in double, one thread per image, in blocks of
 * classes. */
#include "kernels/loss/softmax_cross_entropy.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/loss/loss_targets.h"

static EVERY_MACHINE(float, block_max, (const float *x, int64_t count, float max), (x, count, max))
{
#pragma omp simd reduction(max : max)
    for (int64_t i = 0; i < count; i++) max = x[i] > max ? x[i] : max;
    return max;
}

/* One image's logits. */
struct row {
    const struct call *call;
    int64_t image, classes;
};

static const float *row_load(const struct row *r, int64_t c, int64_t count, float *buffer)
{
    return block_load(&r->call->x[0], r->image * r->classes + c, count, buffer);
}

static float row_max(const struct row *r)
{
    float buffer[BLOCK], max = -INFINITY;
    for (int64_t c = 0; c < r->classes; c += BLOCK) {
        int64_t count = min_count(BLOCK, r->classes - c);
        max = block_max(row_load(r, c, count, buffer), count, max);
    }
    return max;
}

/* log(sum of exp(x - max)). */
static double row_log_sum(const struct row *r, float max)
{
    float buffer[BLOCK];
    double sum = 0;
    for (int64_t c = 0; c < r->classes; c += BLOCK) {
        int64_t count = min_count(BLOCK, r->classes - c);
        const float *x = row_load(r, c, count, buffer);
        for (int64_t k = 0; k < count; k++) sum += exp((double)x[k] - max);
    }
    return log(sum);
}

static double row_target(const struct row *r, int64_t c)
{
    const struct softmax_cross_entropy *s = r->call->settings;
    return target_of(r->call, r->image, c, s->label_smoothing);
}

static void softmax_cross_entropy_cpu_forward_image(const struct call *call, int64_t image)
{
    float buffer[BLOCK];
    struct row r = {call, image, call->x[0].shape.c};
    double max = row_max(&r), log_sum = row_log_sum(&r, (float)max), loss = 0;
    for (int64_t c = 0; c < r.classes; c += BLOCK) {
        int64_t count = min_count(BLOCK, r.classes - c);
        const float *x = row_load(&r, c, count, buffer);
        for (int64_t k = 0; k < count; k++) {
            double target = row_target(&r, c + k);
            if (target != 0) loss += target * (log_sum + (max - x[k]));
        }
    }
    tensor_set(&call->y, image, loss);
    if (call->saved_count) tensor_set(&call->saved[0], image, max + log_sum);
}

static enum status softmax_cross_entropy_cpu_forward(const struct call *call)
{
    int64_t n = call->x[0].shape.n;
#pragma omp parallel for schedule(static) if (n * call->x[0].shape.c > BLOCK)
    for (int64_t i = 0; i < n; i++) softmax_cross_entropy_cpu_forward_image(call, i);
    return OK;
}

static void softmax_cross_entropy_cpu_backward_image(const struct call *call, int64_t image)
{
    float in[BLOCK], out[BLOCK];
    struct row r = {call, image, call->x[0].shape.c};
    double lse = tensor_get(&call->saved[0], image);
    double factor = (double)call->loss_weight * *call->loss_scale / (double)call->x[0].shape.n;
    double sum = 0;
    for (int64_t c = 0; c < r.classes; c++) sum += row_target(&r, c);
    for (int64_t c = 0; c < r.classes; c += BLOCK) {
        int64_t count = min_count(BLOCK, r.classes - c), first = image * r.classes + c;
        const float *x = row_load(&r, c, count, in);
        float *d_x = block_open(&call->d_x[0], first, out);
        for (int64_t k = 0; k < count; k++)
            d_x[k] = (float)((exp(x[k] - lse) * sum - row_target(&r, c + k)) * factor);
        block_store(&call->d_x[0], first, count, d_x);
    }
}

static enum status softmax_cross_entropy_cpu_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    int64_t n = call->x[0].shape.n;
#pragma omp parallel for schedule(static) if (n * call->x[0].shape.c > BLOCK)
    for (int64_t i = 0; i < n; i++) softmax_cross_entropy_cpu_backward_image(call, i);
    return OK;
}

const struct op_code softmax_cross_entropy_cpu = {
    .forward = softmax_cross_entropy_cpu_forward,
    .backward = softmax_cross_entropy_cpu_backward,
};
