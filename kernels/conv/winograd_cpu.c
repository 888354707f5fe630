#include "kernels/conv/winograd.h"

#include "base/machine.h"

#define NEAR 0.75f
#define FAR 1.5f
#define NEAR2 (NEAR * NEAR)
#define FAR2 (FAR * FAR)

/* Lines of PANEL channels: the transforms along one axis of a tile. */

INLINE void input_line(const float *const d[TILE_IN], float *const v[TILE_IN])
{
#pragma omp simd
    for (int i = 0; i < PANEL; i++) {
        float even = d[4][i] - FAR2 * d[2][i], odd = NEAR * (d[3][i] - FAR2 * d[1][i]);
        float even_far = d[4][i] - NEAR2 * d[2][i], odd_far = FAR * (d[3][i] - NEAR2 * d[1][i]);
        float first = NEAR2 * FAR2 * d[0][i] - (NEAR2 + FAR2) * d[2][i] + d[4][i];
        float last = NEAR2 * FAR2 * d[1][i] - (NEAR2 + FAR2) * d[3][i] + d[5][i];
        v[0][i] = first;
        v[1][i] = even + odd;
        v[2][i] = even - odd;
        v[3][i] = even_far + odd_far;
        v[4][i] = even_far - odd_far;
        v[5][i] = last;
    }
}

INLINE void output_line(const float *const m[TILE_IN], float *const y[TILE_OUT])
{
#pragma omp simd
    for (int i = 0; i < PANEL; i++) {
        float near = m[1][i] + m[2][i], near_odd = NEAR * (m[1][i] - m[2][i]);
        float far = m[3][i] + m[4][i], far_odd = FAR * (m[3][i] - m[4][i]);
        float first = m[0][i] + near + far, last = NEAR2 * near_odd + FAR2 * far_odd + m[5][i];
        y[0][i] = first;
        y[1][i] = near_odd + far_odd;
        y[2][i] = NEAR2 * near + FAR2 * far;
        y[3][i] = last;
    }
}

/* The transpose of output_line. */
INLINE void gradient_line(const float *const d_y[TILE_OUT], float *const v[TILE_IN])
{
#pragma omp simd
    for (int i = 0; i < PANEL; i++) {
        float first = d_y[0][i], last = d_y[3][i];
        float near = first + NEAR2 * d_y[2][i], near_odd = NEAR * (d_y[1][i] + NEAR2 * last);
        float far = first + FAR2 * d_y[2][i], far_odd = FAR * (d_y[1][i] + FAR2 * last);
        v[0][i] = first;
        v[1][i] = near + near_odd;
        v[2][i] = near - near_odd;
        v[3][i] = far + far_odd;
        v[4][i] = far - far_odd;
        v[5][i] = last;
    }
}

#define AT_ZERO (1 / (NEAR2 * FAR2))
#define AT_NEAR (1 / (2 * NEAR2 * (NEAR2 - FAR2)))
#define AT_FAR (1 / (2 * FAR2 * (FAR2 - NEAR2)))

INLINE void weight_line(const float *const g[TAP], float *const u[TILE_IN])
{
#pragma omp simd
    for (int i = 0; i < PANEL; i++) {
        float first = g[0][i], middle = g[1][i], last = g[2][i];
        float near = AT_NEAR * (first + NEAR2 * last), near_odd = AT_NEAR * NEAR * middle;
        float far = AT_FAR * (first + FAR2 * last), far_odd = AT_FAR * FAR * middle;
        u[0][i] = AT_ZERO * first;
        u[1][i] = near + near_odd;
        u[2][i] = near - near_odd;
        u[3][i] = far + far_odd;
        u[4][i] = far - far_odd;
        u[5][i] = last;
    }
}

/* The transpose of weight_line. */
INLINE void weight_gradient_line(const float *const u[TILE_IN], float *const g[TAP])
{
#pragma omp simd
    for (int i = 0; i < PANEL; i++) {
        float near = AT_NEAR * (u[1][i] + u[2][i]), far = AT_FAR * (u[3][i] + u[4][i]);
        float first = AT_ZERO * u[0][i] + near + far, last = NEAR2 * near + FAR2 * far + u[5][i];
        g[1][i] = AT_NEAR * NEAR * (u[1][i] - u[2][i]) + AT_FAR * FAR * (u[3][i] - u[4][i]);
        g[0][i] = first;
        g[2][i] = last;
    }
}

/* Along columns, then along rows: LINE computes MADE lines from USED. */
#define TRANSFORM(NAME, LINE, USED, MADE)                                                                   \
    EVERY_MACHINE(void, NAME, (const float *const from[USED * USED], float *to, int64_t stride),            \
                  (from, to, stride))                                                                       \
    {                                                                                                       \
        float half[MADE * USED][PANEL];                                                                     \
        for (int column = 0; column < USED; column++) {                                                     \
            const float *in[USED];                                                                          \
            float *out[MADE];                                                                               \
            for (int i = 0; i < USED; i++) in[i] = from[i * USED + column];                                 \
            for (int i = 0; i < MADE; i++) out[i] = half[i * USED + column];                                \
            LINE(in, out);                                                                                  \
        }                                                                                                   \
        for (int row = 0; row < MADE; row++) {                                                              \
            const float *in[USED];                                                                          \
            float *out[MADE];                                                                               \
            for (int i = 0; i < USED; i++) in[i] = half[row * USED + i];                                    \
            for (int i = 0; i < MADE; i++) out[i] = to + (row * MADE + i) * stride;                         \
            LINE(in, out);                                                                                  \
        }                                                                                                   \
    }

TRANSFORM(winograd_input, input_line, TILE_IN, TILE_IN)
TRANSFORM(winograd_output, output_line, TILE_IN, TILE_OUT)
TRANSFORM(winograd_output_gradient, gradient_line, TILE_OUT, TILE_IN)
TRANSFORM(winograd_weight, weight_line, TAP, TILE_IN)
TRANSFORM(winograd_weight_gradient, weight_gradient_line, TILE_IN, TAP)
