#include "compile/ir/call_equal.h"

/* The members of struct call in their order. NUMBER: equal by ==; TENSOR: by shape and type; LIST,
 * OPERANDS, EPILOGUES: as many as another member says; LEFT: not compared. */
#define CALL_MEMBERS(NUMBER, TENSOR, LIST, OPERANDS, EPILOGUES, LEFT)                          \
    NUMBER(op) LEFT(settings) NUMBER(phase) NUMBER(training)                                   \
    NUMBER(x_count) NUMBER(param_count) NUMBER(saved_count)                                    \
    LIST(x, x_count) LIST(d_x, x_count)                                                        \
    TENSOR(y) TENSOR(d_y)                                                                      \
    LIST(params, param_count) LIST(d_params, param_count) LIST(saved, saved_count)             \
    NUMBER(operand_count) NUMBER(epilogue_count)                                               \
    OPERANDS(operands, operand_count) EPILOGUES(epilogues, epilogue_count)                     \
    LEFT(workspace) LEFT(kernel_plan) LEFT(variant) LEFT(timed) LEFT(random)                   \
    LEFT(loss_scale) NUMBER(ranks) LEFT(loss_weight)                                           \
    LEFT(skipped) LEFT(also) LEFT(tf32) LEFT(deterministic) LEFT(device) LEFT(stream) LEFT(library)

/* One initializer for each row: does not compile if struct call has a member without a row. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wmissing-field-initializers"
#define ZERO(member) 0,
#define TENSOR_ZERO(member) {.shape = {.rank = 0}},
#define LIST_ZERO(member, count) 0,
#define ARRAY_ZERO(member, count) {{0}},
static const struct call rows_cover_members __attribute__((unused)) = {
    CALL_MEMBERS(ZERO, TENSOR_ZERO, LIST_ZERO, ARRAY_ZERO, ARRAY_ZERO, ZERO)
};
#pragma GCC diagnostic pop

static bool tensors_equal(const struct tensor *a, const struct tensor *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i].dtype != b[i].dtype || !shape_equal(a[i].shape, b[i].shape)) return false;
    return true;
}

static bool operands_equal(const struct call_operand *a, const struct call_operand *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i].role != b[i].role || !tensors_equal(&a[i].tensor, &b[i].tensor, 1)) return false;
    return true;
}

static bool epilogues_equal(const struct epilogue *a, const struct epilogue *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i].kind != b[i].kind || a[i].operand != b[i].operand || a[i].argument != b[i].argument)
            return false;
    return true;
}

#define NUMBER_EQUAL(member) && a->member == b->member
#define TENSOR_EQUAL(member) && tensors_equal(&a->member, &b->member, 1)
#define LIST_EQUAL(member, count) && tensors_equal(a->member, b->member, a->count)
#define OPERANDS_EQUAL(member, count) && operands_equal(a->member, b->member, a->count)
#define EPILOGUES_EQUAL(member, count) && epilogues_equal(a->member, b->member, a->count)
#define LEFT_OUT(member)

bool call_equal(const struct call *a, const struct call *b)
{
    return true CALL_MEMBERS(NUMBER_EQUAL, TENSOR_EQUAL, LIST_EQUAL, OPERANDS_EQUAL, EPILOGUES_EQUAL,
                             LEFT_OUT);
}
