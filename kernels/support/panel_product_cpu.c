#include "kernels/support/panel_product.h"

#include "base/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* A tile of y stays in registers: ROWS times COUNT vectors. */
#define TILE(NAME, TARGET, VECTOR, PREFIX, ROWS, COUNT)                                                     \
    __attribute__((target(TARGET))) INLINE void NAME(const struct panel_product *p, int64_t row,            \
                                                     int64_t column)                                        \
    {                                                                                                       \
        enum { LANES = sizeof(VECTOR) / sizeof(float) };                                                    \
        const float *a = p->a + row * p->row, *b = p->b + column;                                           \
        float *y = p->y + row * p->y_row + column;                                                          \
        VECTOR sums[ROWS][COUNT];                                                                           \
        for (int i = 0; i < ROWS; i++)                                                                      \
            for (int j = 0; j < COUNT; j++)                                                                 \
                sums[i][j] = p->add ? PREFIX##_loadu_ps(y + i * p->y_row + j * LANES)                       \
                                    : PREFIX##_setzero_ps();                                                \
        for (int64_t d = 0; d < p->depth; d++, a += p->step, b += p->b_row) {                               \
            VECTOR right[COUNT];                                                                            \
            for (int j = 0; j < COUNT; j++) right[j] = PREFIX##_loadu_ps(b + j * LANES);                    \
            for (int i = 0; i < ROWS; i++) {                                                                \
                VECTOR left = PREFIX##_set1_ps(a[i * p->row]);                                              \
                for (int j = 0; j < COUNT; j++)                                                             \
                    sums[i][j] = PREFIX##_fmadd_ps(left, right[j], sums[i][j]);                             \
            }                                                                                               \
        }                                                                                                   \
        for (int i = 0; i < ROWS; i++)                                                                      \
            for (int j = 0; j < COUNT; j++)                                                                 \
                PREFIX##_storeu_ps(y + i * p->y_row + j * LANES, sums[i][j]);                               \
    }

TILE(tile_512, MACHINE_AVX512_TARGET, __m512, _mm512, 8, 2)
TILE(tile_512_narrow, MACHINE_AVX512_TARGET, __m512, _mm512, 8, 1)
TILE(tile_256, MACHINE_AVX2_TARGET, __m256, _mm256, 4, 2)

/* Columns outside, so that those of b stay in the first-level cache. A copy of the product may stay in
 * registers; the original might be what a vector is stored to. */
__attribute__((target(MACHINE_AVX512_TARGET))) static void multiply_512(const struct panel_product *product)
{
    const struct panel_product p = *product;
    int64_t column = 0;
    for (; column + 32 <= p.columns; column += 32)
        for (int64_t row = 0; row < p.rows; row += 8) tile_512(&p, row, column);
    for (int64_t row = 0; column < p.columns && row < p.rows; row += 8) tile_512_narrow(&p, row, column);
}

__attribute__((target(MACHINE_AVX2_TARGET))) static void multiply_256(const struct panel_product *product)
{
    const struct panel_product p = *product;
    for (int64_t column = 0; column < p.columns; column += 16)
        for (int64_t row = 0; row < p.rows; row += 4) tile_256(&p, row, column);
}
#endif

static void multiply_any(const struct panel_product *p)
{
    for (int64_t column = 0; column < p->columns; column += PANEL_STEP)
        for (int64_t row = 0; row < p->rows; row++) {
            const float *a = p->a + row * p->row, *b = p->b + column;
            float *y = p->y + row * p->y_row + column, sums[PANEL_STEP];
            for (int j = 0; j < PANEL_STEP; j++) sums[j] = p->add ? y[j] : 0;
            for (int64_t d = 0; d < p->depth; d++, a += p->step, b += p->b_row)
                for (int j = 0; j < PANEL_STEP; j++) sums[j] += *a * b[j];
            for (int j = 0; j < PANEL_STEP; j++) y[j] = sums[j];
        }
}

panel_multiply *panel_multiply_here(void)
{
#if defined(__x86_64__)
    switch (machine_vectors()) {
    case MACHINE_AVX512: return multiply_512;
    case MACHINE_AVX2: return multiply_256;
    case MACHINE_BASELINE: break;
    }
#endif
    return multiply_any;
}
