/* known.h: runs an op on given numbers and compares with known ones: the reference, the CPU code and, where
 * AMPTRAIN_DEVICE names one, the code of that device. */
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/support/op_case.h"
#include "tests/support/place.h"
#include "tests/support/unit.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static inline struct op_case *known_open(const char *op, struct op_example example, bool training)
{
    struct reason reason = {0};
    struct op_case *c = op_case_open(op_find(op), &example, F32, training, 1, &reason);
    if (!c) fail_msg("%s: %s", op, reason.text);
    return c;
}

static inline void known_set(const struct tensor *tensor, const double *values, int count)
{
    assert_int_equal(shape_count(tensor->shape), count);
    for (int i = 0; i < count; i++) tensor_set(tensor, i, values[i]);
}

static inline void known_expect(const struct tensor *tensor, const double *values, int count)
{
    assert_int_equal(shape_count(tensor->shape), count);
    for (int i = 0; i < count; i++) {
        double found = tensor_get(tensor, i);
        if (isnan(values[i]) && isnan(found)) continue;
        if (!(fabs(found - values[i]) <= 2e-6 * fmax(1, fabs(values[i]))))
            fail_msg("element %d is %.9g, not %.9g", i, found, values[i]);
    }
}

static inline void known_run(struct op_case *c, const struct op_code *code, enum phase phase)
{
    if (code == c->op->cuda) c->device = place_open(1);
    struct op_case_storage storage;
    struct call call = op_case_call(c, phase, &storage);
    void *kernel_plan;
    op_case_prepare(code, &kernel_plan);
    assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
    op_case_release(kernel_plan);
    device_close(c->device);
    c->device = NULL;
}

/* The reference first, then the CPU's code, then the device's; NULL where there is none. */
#define KNOWN_CODES 3
static inline const struct op_code *known_code(const struct op *op, int i)
{
    if (i < 2) return i ? op_cpu(op) : op->reference;
    return place_is_cpu() ? NULL : op->cuda;
}

#define EACH_CODE(code, op_case_)                                                            \
    for (int known_i_ = 0; known_i_ < KNOWN_CODES; known_i_++)                               \
        for (const struct op_code *code = known_code((op_case_)->op, known_i_); code; code = NULL)

#define EXPECT(tensor, ...)                                                   \
    do {                                                                      \
        const double known_values_[] = {__VA_ARGS__};                         \
        known_expect(tensor, known_values_, COUNT(known_values_));            \
    } while (0)
#define SET(tensor, ...)                                                      \
    do {                                                                      \
        const double known_values_[] = {__VA_ARGS__};                         \
        known_set(tensor, known_values_, COUNT(known_values_));               \
    } while (0)

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
