/* sum_rounded: y = r(r(x[0]) + r(x[1])) of two gradients of a parameter, all fp32; r rounds to a type of
 * 16 bits, in which ranks send such sums (parallel.wire=storage). */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/exchange/sum_rounded.h"

static double rounded(const struct call *call, double x)
{
    double kept;
    enum dtype dtype = (enum dtype)((const struct sum_rounded *)call->settings)->to;
    dtype_set(dtype, &kept, 0, x);
    return dtype_get(dtype, &kept, 0);
}

static enum status forward(const struct call *call)
{
    for (int64_t i = 0; i < shape_count(call->y.shape); i++) {
        double a = rounded(call, tensor_get(&call->x[0], i)), b = rounded(call, tensor_get(&call->x[1], i));
        tensor_set(&call->y, i, rounded(call, a + b));
    }
    return OK;
}

static void round_to(const struct call *call, const float *x, int64_t count, float *y)
{
    uint16_t kept[BLOCK];
    enum dtype dtype = (enum dtype)((const struct sum_rounded *)call->settings)->to;
    dtype_convert(dtype, kept, F32, x, (size_t)count);
    dtype_convert(F32, y, dtype, kept, (size_t)count);
}

static void sum_block(const struct call *call, int64_t first, int64_t count)
{
    ALIGNED float in[BLOCK], a[BLOCK], b[BLOCK];
    float *y = block_open(&call->y, first, in);
    round_to(call, block_load(&call->x[0], first, count, in), count, a);
    round_to(call, block_load(&call->x[1], first, count, in), count, b);
    for (int64_t i = 0; i < count; i++) a[i] += b[i];
    round_to(call, a, count, y);
    block_store(&call->y, first, count, y);
}

static enum status forward_cpu(const struct call *call)
{
    int64_t count = shape_count(call->y.shape);
#pragma omp parallel for schedule(static) if (count > PARALLEL)
    for (int64_t first = 0; first < count; first += BLOCK)
        sum_block(call, first, min_count(BLOCK, count - first));
    return OK;
}

static const char *const types[] = {"fp32", "fp16", "bf16", NULL};
_Static_assert(F32 == 0 && F16 == 1 && BF16 == 2, "the names are in the order of enum dtype");
static const struct field fields[] = {
    {.name = "to", .type = FIELD_CHOICE, .offset = offsetof(struct sum_rounded, to), .choices = types,
     .help = "Data type to which terms and sum are rounded."},
    {0},
};

static const struct op_code reference = {.forward = forward};
static const struct op_code cpu = {.forward = forward_cpu};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"to=fp16", 2, {SHAPE(3, 7, 7, 5), SHAPE(3, 7, 7, 5)}},
    {"to=bf16", 2, {SHAPE(1, 31, 7, 24), SHAPE(1, 31, 7, 24)}},
    {0},
};

const struct op sum_rounded_op = {
    .name = "sum_rounded",
    .help = "Sum of two gradients, rounded to 16 bits.",
    .precision = CLASS_FULL,
    .settings_size = sizeof(struct sum_rounded),
    .fields = fields,
    .min_inputs = 2,
    .max_inputs = 2,
    .internal = true,
    .shape = elementwise_shape,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &cpu,
    .cuda = ON_CUDA(sum_rounded_cuda),
    .examples = examples,
};
