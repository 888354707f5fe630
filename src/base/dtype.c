#include "dtype.h"

#include <assert.h>
#include <string.h>

#include "base/machine.h"

const struct dtype_row dtype_table[DTYPE_COUNT] = {
    [F32] = {"fp32", "F32", 4}, [F16] = {"fp16", "F16", 2},   [BF16] = {"bf16", "BF16", 2},
    [U8] = {"uint8", "U8", 1},  [I32] = {"int32", "I32", 4},  [I64] = {"int64", "I64", 8},
    [F64] = {"fp64", "F64", 8},
};

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Written without branches, so that loops over it vectorise. A half's exponent is rebiased by an
 * integer subtraction and the lost mantissa bits are rounded by adding just under half of the last
 * kept one; subnormal halves come out of a float addition that shifts the mantissa into place. */
static inline uint16_t f16_round(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1)) >> 13;
    uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x47800000u ? special : half;
    return (uint16_t)(sign | half);
}

static inline float f16_widen(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = (uint32_t)(half & 0x7fffu) << 13;
    float scaled = bits_float(magnitude) * 0x1p112f;
    uint32_t special = magnitude + 0x70000000u;
    uint32_t bits = magnitude >= 0x0f800000u ? special : float_bits(scaled);
    return bits_float(sign | bits);
}

static inline uint16_t bf16_round(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float bf16_widen(uint16_t bits)
{
    return bits_float((uint32_t)bits << 16);
}

uint16_t f16_from_float(float value) { return f16_round(value); }
float f16_to_float(uint16_t bits) { return f16_widen(bits); }
uint16_t bf16_from_float(float value) { return bf16_round(value); }
float bf16_to_float(uint16_t bits) { return bf16_widen(bits); }

double dtype_get(enum dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case F32: return ((const float *)data)[i];
    case F16: return f16_widen(((const uint16_t *)data)[i]);
    case BF16: return bf16_widen(((const uint16_t *)data)[i]);
    case U8: return ((const uint8_t *)data)[i];
    case I32: return ((const int32_t *)data)[i];
    case I64: return (double)((const int64_t *)data)[i];
    case F64: return ((const double *)data)[i];
    case DTYPE_COUNT: break;
    }
    assert(!"dtype");
    return 0;
}

void dtype_set(enum dtype dtype, void *data, int64_t i, double value)
{
    switch (dtype) {
    case F32: ((float *)data)[i] = (float)value; return;
    case F16: ((uint16_t *)data)[i] = f16_round((float)value); return;
    case BF16: ((uint16_t *)data)[i] = bf16_round((float)value); return;
    case U8: ((uint8_t *)data)[i] = (uint8_t)value; return;
    case I32: ((int32_t *)data)[i] = (int32_t)value; return;
    case I64: ((int64_t *)data)[i] = (int64_t)value; return;
    case F64: ((double *)data)[i] = value; return;
    case DTYPE_COUNT: break;
    }
    assert(!"dtype");
}

static EVERY_MACHINE(void, f16_to_f32, (float *to, const uint16_t *from, size_t count), (to, from, count))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) to[i] = f16_widen(from[i]);
}
static EVERY_MACHINE(void, f32_to_f16, (uint16_t *to, const float *from, size_t count), (to, from, count))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) to[i] = f16_round(from[i]);
}
static EVERY_MACHINE(void, bf16_to_f32, (float *to, const uint16_t *from, size_t count), (to, from, count))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) to[i] = bf16_widen(from[i]);
}
static EVERY_MACHINE(void, f32_to_bf16, (uint16_t *to, const float *from, size_t count), (to, from, count))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) to[i] = bf16_round(from[i]);
}

void dtype_convert(enum dtype to, void *target, enum dtype from, const void *source, size_t count)
{
    if (to == from) {
        if (target != source) memcpy(target, source, count * dtype_bytes(to));
    } else if (from == F16 && to == F32) {
        f16_to_f32(target, source, count);
    } else if (from == BF16 && to == F32) {
        bf16_to_f32(target, source, count);
    } else if (from == F32 && to == F16) {
        f32_to_f16(target, source, count);
    } else if (from == F32 && to == BF16) {
        f32_to_bf16(target, source, count);
    } else {
        for (size_t i = 0; i < count; i++)
            dtype_set(to, target, (int64_t)i, dtype_get(from, source, (int64_t)i));
    }
}
