/* cast: y = x in another number type. */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/elementwise.h"

struct cast {
    int to;   /* enum dtype */
};

/* Double precision, in which tests compute gradients, is not cast. */
static enum dtype cast_output_dtype(const void *settings, enum dtype input)
{
    return input == F64 ? F64 : (enum dtype)((const struct cast *)settings)->to;
}

static void cast_convert(const struct tensor *to, const struct tensor *from)
{
    int64_t count = shape_count(to->shape);
#pragma omp parallel for schedule(static) if (count > PARALLEL)
    for (int64_t first = 0; first < count; first += BLOCK)
        dtype_convert(to->dtype, block_address(to, first), from->dtype, block_address(from, first),
                      (size_t)min_count(BLOCK, count - first));
}

static enum status cast_forward(const struct call *call)
{
    cast_convert(&call->y, &call->x[0]);
    return OK;
}

static enum status cast_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    cast_convert(&call->d_x[0], &call->d_y);
    return OK;
}

static const char *const types[] = {"fp32", "fp16", "bf16", NULL};
_Static_assert(F32 == 0 && F16 == 1 && BF16 == 2, "the names are in the order of enum dtype");
static const struct field fields[] = {
    {.name = "to", .type = FIELD_CHOICE, .offset = offsetof(struct cast, to), .choices = types,
     .help = "Data type of the output."},
    {0},
};

static const struct op_code reference = {.forward = cast_forward, .backward = cast_backward};

static const struct op_example examples[] = {
    {"to=fp32", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},
    {"to=fp16", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {"to=bf16", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op cast_op = {
    .name = "cast",
    .help = "Conversion to another data type.",
    .settings_size = sizeof(struct cast),
    .fields = fields,
    .internal = true,
    .shape = elementwise_shape,
    .output_dtype = cast_output_dtype,
    .reference = &reference,
    .cuda = ON_CUDA(cast_cuda),
    .examples = examples,
};
