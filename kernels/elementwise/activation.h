/* activation.h: the formulas of activations.def as functions, of double for references and of float for loops
 * that the compiler vectorises. */
#pragma once

#include "base/machine.h"
#include "kernels/op.h"
#include "kernels/support/exp.h"

/* Settings of leaky_relu. */
struct leaky_relu {
    double slope;
};

/* The activation that the op of a call is, and the tensor that its backward reads. */
static inline struct call_activation activation_of_op(const struct call *call)
{
    struct call_activation own = {ACTIVATION_RELU, 0};
    while (strcmp(call->op->name, activation_words[own.kind]) != 0)
        own.kind = (enum activation)(own.kind + 1);
    if (own.kind == ACTIVATION_LEAKY_RELU) own.slope = ((const struct leaky_relu *)call->settings)->slope;
    return own;
}
static inline const struct tensor *activation_value(const struct call *call)
{
    return call->op->reads(call->settings, PHASE_BACKWARD) & READS_X ? &call->x[0] : &call->y;
}

/* y of so many z, which may be the same memory; the gradients of z, which may lie over either. */
void activation_block(struct call_activation activation, const float *z, float *y, int64_t count);
void activation_gradient_block(struct call_activation activation, const float *z, const float *d, float *d_z,
                               int64_t count);

#ifndef __cplusplus
#define OVER(a, z) ((a) * SIGMOID(z))
#define SIXTH(a) ((a) / 6)
#define PRODUCT(a, b) ((a) * (b))

#define ACTIVATION(NAME, op, value, help, forward, backward) case ACTIVATION_##NAME: return forward;
INLINE double activate(enum activation activation, double z, double slope)
{
    switch (activation) {
#include "kernels/activations.def"
    case ACTIVATION_NONE: break;
    }
    return z;
}
INLINE float activate_fp32(enum activation activation, float z, float slope)
{
    switch (activation) {
#include "kernels/activations.def"
    case ACTIVATION_NONE: break;
    }
    return z;
}
#undef ACTIVATION

#define ACTIVATION(NAME, op, value, help, forward, backward) case ACTIVATION_##NAME: return backward;
INLINE double activation_gradient(enum activation activation, double z, double d, double slope)
{
    switch (activation) {
#include "kernels/activations.def"
    case ACTIVATION_NONE: break;
    }
    return d;
}
INLINE float activation_gradient_fp32(enum activation activation, float z, float d, float slope)
{
    switch (activation) {
#include "kernels/activations.def"
    case ACTIVATION_NONE: break;
    }
    return d;
}
#undef ACTIVATION
#endif
