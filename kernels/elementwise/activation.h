/* activation.h: the formulas of activations.def as functions, of double for references and of float for loops
 * that the compiler vectorises. */
#pragma once

#include "base/machine.h"
#include "kernels/call.h"
#include "kernels/support/exp.h"

#define OVER(a, z) ((a) * SIGMOID(z))
#define SIXTH(a) ((a) / 6)
#define PRODUCT(a, b) ((a) * (b))


#define ACTIVATION_FORWARD(NAME, word, forward, backward) case ACTIVATION_##NAME: return forward;
#define ACTIVATION_BACKWARD(NAME, word, forward, backward) case ACTIVATION_##NAME: return backward;

#define ACTIVATION ACTIVATION_FORWARD
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

#define ACTIVATION ACTIVATION_BACKWARD
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
