/* exp.h: the exponential function in fp32 as plain arithmetic, for loops that the compiler vectorises. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e^x for x <= 88, within 2 units in the last place; below -87 it is e^-87. */
static inline float exp_of(float x)
{
    const float shift = 12582912;    /* 1.5 * 2^23: its last bits are those of the rounded number */
    x = x < -87 ? -87 : x;       /* NaN stays */
    float rounded = x * 1.44269504f + shift, n = rounded - shift, value;
    uint32_t exponent, bits;
    x = x - n * 0.693359375f + n * 2.12194440e-4f;
    value = 1.9875691500e-4f * x + 1.3981999507e-3f;
    value = value * x + 8.3334519073e-3f;
    value = value * x + 4.1665795894e-2f;
    value = value * x + 1.6666665459e-1f;
    value = value * x + 5.0000001201e-1f;
    value = value * x * x + x + 1;
    memcpy(&exponent, &rounded, sizeof exponent);
    memcpy(&bits, &value, sizeof bits);
    bits += (exponent - 0x4b400000) << 23;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* 1 / (1 + e^-x) */
#define SIGMOID(x) _Generic((x), float: sigmoid_fp32, double: sigmoid_fp64)(x)
static inline float sigmoid_fp32(float x)
{
    return 1 / (1 + exp_of(x < -88 ? 88 : -x));
}
static inline double sigmoid_fp64(double x)
{
    return 1 / (1 + exp(-x));
}
