/* add_cpu.c: addition in blocks of fp32. */
#include "kernels/cpu.h"

static EVERY_MACHINE(void, add_two, (const float *a, const float *b, float *sum, int64_t count),
                     (a, b, sum, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sum[i] = a[i] + b[i];
}

static EVERY_MACHINE(void, apply_relu, (float *values, int64_t count), (values, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) values[i] = values[i] <= 0 ? 0 : values[i];
}

/* y may share x[0]'s memory, so a buffer is used for more than two inputs. */
static void add_block(const struct call *call, int64_t first, int64_t count)
{
    ALIGNED float a[BLOCK], b[BLOCK], out[BLOCK];
    float *sum = call->x_count == 2 ? block_open(&call->y, first, out) : out;
    add_two(block_load(&call->x[0], first, count, a), block_load(&call->x[1], first, count, b), sum, count);
    for (int k = 2; k < call->x_count; k++)
        add_two(sum, block_load(&call->x[k], first, count, b), sum, count);
    if (call_epilogue(call, EPILOGUE_RELU)) apply_relu(sum, count);
    if (sum == out) dtype_convert(call->y.dtype, block_address(&call->y, first), F32, sum, (size_t)count);
}

static enum status add_cpu_forward(const struct call *call)
{
    int64_t count = shape_count(call->y.shape);
#pragma omp parallel for schedule(static) if (count > PARALLEL)
    for (int64_t first = 0; first < count; first += BLOCK)
        add_block(call, first, min_count(BLOCK, count - first));
    return OK;
}

const struct op_code add_cpu = {.supports = call_applies_relu, .forward = add_cpu_forward};
