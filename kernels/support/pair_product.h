/* pair_product.h: the innermost product of matrices in bf16 by the tiles of AMX, which add up products of
 * pairs, and the arrangement of its operands. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* y[i][j] = sum over d < depth of a[i][d] * b[d][j], or added to y, for i and j < PAIR_BLOCK. Sums are
 * fp32, in the order of d. `depth` is a multiple of PAIR_DEPTH. a[i] begins at i * row; rows of y are
 * contiguous; b is cut into halves, `half` elements apart: half, d / 2, PAIR_HALF columns, d % 2. */
#define PAIR_BLOCK 32
#define PAIR_HALF 16
#define PAIR_DEPTH 32
struct pair_product {
    const uint16_t *a;
    int64_t row;
    const uint16_t *b;
    int64_t half;
    float *y;
    int64_t depth;
    bool add;
};

/* PAIR_DEPTH lines of elements, NULL for zeros; of each, PAIR_HALF from `first` on, zeros behind `count`,
 * which may be negative. */
struct pair_lines {
    const uint16_t *const *lines;
    int64_t first, count;
};

/* `begin` and `end` surround a thread's calls of `multiply`. */
struct pair_code {
    void (*begin)(void);
    void (*end)(void);
    void (*multiply)(const struct pair_product *product);
    void (*transpose)(const struct pair_lines *from, uint16_t *to, int64_t row);   /* as rows of a */
    void (*interleave)(const struct pair_lines *from, uint16_t *to);               /* as a half of b */
};

/* NULL: this CPU, or ONEDNN_MAX_CPU_ISA, has no AMX. (With AVX-512 BF16 the same on vectors is no faster than
 * oneDNN's code, and several times as slow as Winograd's.) */
const struct pair_code *pair_code_here(void);
