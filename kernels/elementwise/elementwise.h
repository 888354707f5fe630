/* elementwise.h: code shared by ops that process every element independently, most of one input. */
#pragma once

#include "base/machine.h"
#include "kernels/codes_cuda.h"

/* The output has the first input's shape. */
bool elementwise_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                       struct reason *reason);
/* Shape rule of several inputs, which must all have the same shape. */
bool elementwise_same_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                            struct reason *reason);
/* Forward over x, backward over d_y. */
bool elementwise_in_place(const void *settings, enum phase phase, int x_count, const struct shape *x);
unsigned elementwise_reads_x(const void *settings, enum phase phase);
unsigned elementwise_reads_y(const void *settings, enum phase phase);

/* Plain loops: y = function(x); d_x = gradient(d_y, value), value being x or y, whichever the op reads.
 * Backward also computes Y_RECOMPUTED, if the call has it. */
typedef double elementwise_function(const void *settings, double x);
typedef double elementwise_gradient(const void *settings, double d_y, double value);
enum status elementwise_forward(const struct call *call, elementwise_function *function);
enum status elementwise_backward(const struct call *call, const struct tensor *value,
                                 elementwise_gradient *gradient, elementwise_function *function);

/* CPU code: on threads, by blocks of fp32. */
typedef void elementwise_block(const void *settings, const float *x, float *y, int64_t count);
typedef void elementwise_gradient_block(const void *settings, const float *value, const float *d_y,
                                        float *d_x, int64_t count);
enum status elementwise_forward_cpu(const struct call *call, elementwise_block *block);
enum status elementwise_backward_cpu(const struct call *call, const struct tensor *value,
                                     elementwise_gradient_block *gradient, elementwise_block *block);

/* Defines op_code `name` from a function (call, to, from) that computes y from x as well as d_x from d_y. */
#define MAP_CODE(name, map)                                                                                 \
    static enum status name##_forward(const struct call *call)                                              \
    {                                                                                                       \
        map(call, &call->y, &call->x[0]);                                                                   \
        return OK;                                                                                          \
    }                                                                                                       \
    static enum status name##_backward(const struct call *call)                                             \
    {                                                                                                       \
        if (call->d_x[0].data) map(call, &call->d_x[0], &call->d_y);                                        \
        return OK;                                                                                          \
    }                                                                                                       \
    static const struct op_code name = {.forward = name##_forward, .backward = name##_backward};

/* Calls a loop with its settings. An op's file may define it otherwise, for a copy that the compiler knows:
 * then it neither computes for each element what belongs to other settings, nor loads them. */
#ifndef EACH_SETTINGS
#define EACH_SETTINGS(loop, settings, ...) loop(settings, __VA_ARGS__)
#endif

/* Defines op_op: y = FORWARD(x), d_x = BACKWARD(d_y, value). The op's file defines both as macros, which fit
 * float and double (<tgmath.h>); `s` in them are the settings, of type `type`. `value` is x or y. What
 * follows `example`, settings to test, is for struct op. */
#define ELEMENTWISE_OP(op_, help_, value_, type, example, ...)                                              \
    static double op_##_function(const void *settings, double x)                                            \
    {                                                                                                       \
        const type *s = settings;                                                                           \
        (void)s;                                                                                            \
        return FORWARD(x);                                                                                  \
    }                                                                                                       \
    static double op_##_gradient(const void *settings, double d_y, double value)                            \
    {                                                                                                       \
        const type *s = settings;                                                                           \
        (void)s;                                                                                            \
        return BACKWARD(d_y, value);                                                                        \
    }                                                                                                       \
    INLINE void op_##_loop(const type *s, const float *x, float *y, int64_t count)                          \
    {                                                                                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) y[i] = FORWARD(x[i]);                       \
    }                                                                                                       \
    static EVERY_MACHINE(void, op_##_block, (const void *settings, const float *x, float *y, int64_t count),\
                         (settings, x, y, count))                                                           \
    {                                                                                                       \
        EACH_SETTINGS(op_##_loop, (const type *)settings, x, y, count);                                     \
    }                                                                                                       \
    INLINE void op_##_gradient_loop(const type *s, const float *value, const float *d_y, float *d_x,        \
                                    int64_t count)                                                          \
    {                                                                                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++)                                             \
        {                                                                                                   \
            float own = d_y[i], at = value[i];    /* loaded in any case, without a jump */                  \
            d_x[i] = BACKWARD(own, at);                                                                     \
        }                                                                                                   \
    }                                                                                                       \
    static EVERY_MACHINE(void, op_##_gradient_block, (const void *settings, const float *value,             \
                         const float *d_y, float *d_x, int64_t count), (settings, value, d_y, d_x, count))  \
    {                                                                                                       \
        EACH_SETTINGS(op_##_gradient_loop, (const type *)settings, value, d_y, d_x, count);                 \
    }                                                                                                       \
    static enum status op_##_forward(const struct call *call)                                               \
    {                                                                                                       \
        return elementwise_forward(call, op_##_function);                                                   \
    }                                                                                                       \
    static enum status op_##_backward(const struct call *call)                                              \
    {                                                                                                       \
        return elementwise_backward(call, elementwise_##value_(call), op_##_gradient, op_##_function);      \
    }                                                                                                       \
    static enum status op_##_forward_cpu(const struct call *call)                                           \
    {                                                                                                       \
        return elementwise_forward_cpu(call, op_##_block);                                                  \
    }                                                                                                       \
    static enum status op_##_backward_cpu(const struct call *call)                                          \
    {                                                                                                       \
        return elementwise_backward_cpu(call, elementwise_##value_(call), op_##_gradient_block,             \
                                        op_##_block);                                                       \
    }                                                                                                       \
    static const struct op_code reference = {.forward = op_##_forward, .backward = op_##_backward};         \
    static const struct op_code cpu = {.forward = op_##_forward_cpu, .backward = op_##_backward_cpu};       \
    static const struct op_example examples[] = {                                                           \
        {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},                                             \
        {example, 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},                                      \
        {"", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},                                             \
        {0},                                                                                                \
    };                                                                                                      \
    const struct op op_##_op = {                                                                            \
        .name = #op_, .help = help_, .shape = elementwise_shape, .reads = elementwise_reads_##value_,       \
        .in_place = elementwise_in_place, .reference = &reference, .cpu = &cpu,                             \
        .cuda = ON_CUDA(op_##_cuda), .examples = examples, __VA_ARGS__                                      \
    }

static inline const struct tensor *elementwise_x(const struct call *call) { return &call->x[0]; }
static inline const struct tensor *elementwise_y(const struct call *call) { return &call->y; }
