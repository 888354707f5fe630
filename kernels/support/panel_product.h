/* panel_product.h: the innermost product of matrices on the CPU, by the widest vectors available. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* y[r][j] = sum over d < depth of a[r * row + d * step] * b[d][j], or added to y. Rows of b and y begin at
 * multiples of b_row and y_row. `columns` is a multiple of PANEL_STEP, `rows` of PANEL_ROWS. Each sum is one
 * chain of fused multiplications and additions in the order of d, so that all vectors give the same bits. */
#define PANEL 32
#define PANEL_STEP 16
#define PANEL_ROWS 8
struct panel_product {
    const float *a;
    int64_t row, step;
    const float *b;
    int64_t b_row;
    float *y;
    int64_t y_row, rows, columns, depth;
    bool add;
};
typedef void panel_multiply(const struct panel_product *product);

/* The fastest for this CPU, limited by ONEDNN_MAX_CPU_ISA. With neither AVX-512 nor AVX2 it is
 * plain loops, slow and not fused. */
panel_multiply *panel_multiply_here(void);
