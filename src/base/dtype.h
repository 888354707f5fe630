/* dtype.h: the number types that tensors are stored in, as rows of one table. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum dtype { F32, F16, BF16, U8, I32, I64, F64, DTYPE_COUNT };

struct dtype_row {
    const char *name;         /* "fp32", as users write it */
    const char *safetensors;  /* "F32", as safetensors headers write it */
    size_t bytes;
};
extern const struct dtype_row dtype_table[DTYPE_COUNT];

static inline size_t dtype_bytes(enum dtype dtype) { return dtype_table[dtype].bytes; }

/* True if dtype_convert() supports it. */
static inline _Bool dtype_is_float(enum dtype dtype)
{
    return dtype == F32 || dtype == F16 || dtype == BF16;
}

/* Rounds to nearest even, as IEEE 754 does; overflow becomes infinity, NaN stays NaN. */
uint16_t f16_from_float(float value);
float f16_to_float(uint16_t bits);
uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t bits);

/* One element, any type, by index: for reference code and tests. Storing into an integer type rounds toward
 * zero. */
double dtype_get(enum dtype dtype, const void *data, int64_t index);
void dtype_set(enum dtype dtype, void *data, int64_t index, double value);

/* `count` elements from one floating type to another, vectorised, one thread. The arrays must
 * not overlap unless they are equal and of the same type. */
void dtype_convert(enum dtype to, void *target, enum dtype from, const void *source, size_t count);
