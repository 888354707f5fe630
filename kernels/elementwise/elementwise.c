#include "kernels/elementwise/elementwise.h"

#include "kernels/cpu.h"

bool elementwise_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                       struct reason *reason)
{
    *y = x[0];
    return true;
}

bool elementwise_same_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                            struct reason *reason)
{
    char first[SHAPE_TEXT], other[SHAPE_TEXT];
    for (int i = 1; i < x_count; i++)
        if (!shape_equal(x[0], x[i]))
            return because(reason, "input %d is %s, not %s as the first", i + 1, shape_text(x[i], other),
                           shape_text(x[0], first));
    *y = x[0];
    return true;
}

bool elementwise_in_place(const void *settings, enum phase phase, int x_count, const struct shape *x)
{
    return phase != PHASE_RECOMPUTE;
}

unsigned elementwise_reads_x(const void *settings, enum phase phase)
{
    return READS_X;
}

unsigned elementwise_reads_y(const void *settings, enum phase phase)
{
    return READS_Y;
}

enum status elementwise_forward(const struct call *call, elementwise_function *function)
{
    int64_t count = shape_count(call->y.shape);
    for (int64_t i = 0; i < count; i++)
        tensor_set(&call->y, i, function(call->settings, tensor_get(&call->x[0], i)));
    return OK;
}

enum status elementwise_backward(const struct call *call, const struct tensor *value,
                                 elementwise_gradient *gradient, elementwise_function *function)
{
    int64_t count = call->d_x[0].data ? shape_count(call->d_y.shape) : 0;
    for (int64_t i = 0; i < count; i++)
        tensor_set(&call->d_x[0], i,
                   gradient(call->settings, tensor_get(&call->d_y, i), tensor_get(value, i)));
    if (!call_operand(call, OPERAND_Y_RECOMPUTED)) return OK;
    struct call recompute = call_that_recomputes(call);
    return elementwise_forward(&recompute, function);
}

static void elementwise_forward_block(const struct call *call, const struct tensor *to,
                                      elementwise_block *block, int64_t first, int64_t count)
{
    ALIGNED float in[BLOCK], out[BLOCK];
    float *y = block_open(to, first, out);
    block(call->settings, block_load(&call->x[0], first, count, in), y, count);
    block_store(to, first, count, y);
}

enum status elementwise_forward_cpu(const struct call *call, elementwise_block *block)
{
    int64_t count = shape_count(call->y.shape);
#pragma omp parallel for schedule(static) if (count > PARALLEL)
    for (int64_t first = 0; first < count; first += BLOCK)
        elementwise_forward_block(call, &call->y, block, first, min_count(BLOCK, count - first));
    return OK;
}

static void elementwise_backward_block(const struct call *call, const struct tensor *value,
                                       elementwise_gradient_block *block, int64_t first, int64_t count)
{
    ALIGNED float values[BLOCK], in[BLOCK], out[BLOCK];
    float *d_x = block_open(&call->d_x[0], first, out);
    block(call->settings, block_load(value, first, count, values), block_load(&call->d_y, first, count, in),
          d_x, count);
    block_store(&call->d_x[0], first, count, d_x);
}

enum status elementwise_backward_cpu(const struct call *call, const struct tensor *value,
                                     elementwise_gradient_block *gradient, elementwise_block *block)
{
    const struct tensor *again = call_operand(call, OPERAND_Y_RECOMPUTED);
    int64_t count = call->d_x[0].data || again ? shape_count(call->d_y.shape) : 0;
#pragma omp parallel for schedule(static) if (count > PARALLEL)
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t size = min_count(BLOCK, count - first);
        if (call->d_x[0].data) elementwise_backward_block(call, value, gradient, first, size);
        if (again) elementwise_forward_block(call, again, block, first, size);
    }
    return OK;
}
