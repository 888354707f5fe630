#include "kernels/support/panel_product.h"

#include "base/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* A tile of y stays in registers: ROWS times COLUMNS vectors. */
#define MULTIPLY(NAME, TARGET, VECTOR, PREFIX, ROWS, COLUMNS)                                               \
    __attribute__((target(TARGET))) static void NAME(const struct panel_product *p)                         \
    {                                                                                                       \
        enum { LANES = sizeof(VECTOR) / sizeof(float) };                                                    \
        for (int64_t row = 0; row < p->rows; row += ROWS)                                                   \
            for (int64_t column = 0; column < PANEL; column += COLUMNS * LANES) {                           \
                const float *a = p->a + row * p->row, *b = p->b + column;                                   \
                float *y = p->y + row * PANEL + column;                                                     \
                VECTOR sums[ROWS][COLUMNS];                                                                 \
                for (int i = 0; i < ROWS; i++)                                                              \
                    for (int j = 0; j < COLUMNS; j++)                                                       \
                        sums[i][j] = p->add ? PREFIX##_loadu_ps(y + i * PANEL + j * LANES)                  \
                                            : PREFIX##_setzero_ps();                                        \
                for (int64_t d = 0; d < p->depth; d++, a += p->step, b += PANEL) {                          \
                    VECTOR right[COLUMNS];                                                                  \
                    for (int j = 0; j < COLUMNS; j++) right[j] = PREFIX##_loadu_ps(b + j * LANES);          \
                    for (int i = 0; i < ROWS; i++) {                                                        \
                        VECTOR left = PREFIX##_set1_ps(a[i * p->row]);                                      \
                        for (int j = 0; j < COLUMNS; j++)                                                   \
                            sums[i][j] = PREFIX##_fmadd_ps(left, right[j], sums[i][j]);                     \
                    }                                                                                       \
                }                                                                                           \
                for (int i = 0; i < ROWS; i++)                                                              \
                    for (int j = 0; j < COLUMNS; j++)                                                       \
                        PREFIX##_storeu_ps(y + i * PANEL + j * LANES, sums[i][j]);                          \
            }                                                                                               \
    }

MULTIPLY(multiply_512, MACHINE_AVX512_TARGET, __m512, _mm512, 8, 2)
MULTIPLY(multiply_256, MACHINE_AVX2_TARGET, __m256, _mm256, 4, 2)
#endif

static void multiply_any(const struct panel_product *p)
{
    for (int64_t row = 0; row < p->rows; row++) {
        float *y = p->y + row * PANEL;
        for (int64_t j = 0; j < PANEL && !p->add; j++) y[j] = 0;
        for (int64_t d = 0; d < p->depth; d++)
            for (int64_t j = 0; j < PANEL; j++)
                y[j] += p->a[row * p->row + d * p->step] * p->b[d * PANEL + j];
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
