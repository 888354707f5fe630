/* Matrices lie in panels of PANEL columns, each of which is contiguous; rows and columns are padded with
 * zeros, which remain zeros. A matrix of more rows than columns is transposed first. */
#include "kernels/optimizer/orthogonalize.h"

#include <math.h>

#include "base/align.h"
#include "kernels/support/panel_product.h"

#define BLOCK 128              /* rows that a thread takes at a time: a multiple of PANEL_ROWS */

struct ortho {
    int64_t m, n;              /* m <= n: padded */
    float *x, *y, *turned;     /* m x n, m x n, n x m */
    float *a, *b;              /* m x m */
};

static int64_t padded(int64_t size) { return (int64_t)align_up((size_t)size, PANEL); }

static int64_t shorter(int64_t rows, int64_t columns) { return padded(rows < columns ? rows : columns); }

static int64_t longer(int64_t rows, int64_t columns) { return padded(rows < columns ? columns : rows); }

int64_t orthogonalize_scratch(int64_t rows, int64_t columns)
{
    int64_t m = shorter(rows, columns), n = longer(rows, columns);
    return 3 * m * n + 2 * m * m;
}

static struct ortho ortho_open(float *scratch, int64_t rows, int64_t columns)
{
    struct ortho o = {.m = shorter(rows, columns), .n = longer(rows, columns), .x = scratch};
    o.y = o.x + o.m * o.n;
    o.turned = o.y + o.m * o.n;
    o.a = o.turned + o.m * o.n;
    o.b = o.a + o.m * o.m;
    return o;
}

float *orthogonalize_input(float *scratch, int64_t rows, int64_t columns)
{
    return ortho_open(scratch, rows, columns).turned;
}

/* The input, divided by its norm, as x. */
static void ortho_begin(const struct ortho *o, int64_t rows, int64_t columns, float factor)
{
    bool turns = rows > columns;
    int64_t m = turns ? columns : rows, n = turns ? rows : columns;
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < o->n / PANEL; p++) {
        float *panel = o->x + p * PANEL * o->m;
        for (int64_t i = 0; i < o->m; i++)
            for (int64_t j = 0; j < PANEL; j++) {
                int64_t k = p * PANEL + j, from = turns ? k * columns + i : i * columns + k;
                panel[i * PANEL + j] = i < m && k < n ? o->turned[from] * factor : 0;
            }
    }
}

static void ortho_turn(const struct ortho *o)
{
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < o->n / PANEL; p++)
        for (int64_t i = 0; i < o->m; i++) {
            const float *row = o->x + p * PANEL * o->m + i * PANEL;
            float *column = o->turned + i / PANEL * PANEL * o->n + p * PANEL * PANEL + i % PANEL;
            for (int64_t j = 0; j < PANEL; j++) column[j * PANEL] = row[j];
        }
}

/* out = left x right, of rows x inner and inner x columns. */
struct panels {
    const float *left, *right;
    float *out;
    int64_t rows, inner, columns;
};

static void panels_block(const struct panels *p, panel_multiply *multiply, int64_t panel, int64_t first)
{
    int64_t rows = p->rows - first < BLOCK ? p->rows - first : BLOCK;
    for (int64_t k = 0; k < p->inner / PANEL; k++)
        multiply(&(struct panel_product){
            .a = p->left + (k * p->rows + first) * PANEL, .row = PANEL, .step = 1,
            .b = p->right + (panel * p->inner + k * PANEL) * PANEL, .b_row = PANEL,
            .y = p->out + (panel * p->rows + first) * PANEL, .y_row = PANEL,
            .rows = rows, .columns = PANEL, .depth = PANEL, .add = k > 0,
        });
}

static void panels_multiply(const struct panels *p)
{
    panel_multiply *multiply = panel_multiply_here();
    int64_t blocks = (p->rows + BLOCK - 1) / BLOCK, panels = p->columns / PANEL;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < panels * blocks; i++) panels_block(p, multiply, i / blocks, i % blocks * BLOCK);
}

/* to = x * from + y * to */
static void ortho_blend(float *to, float y, const float *from, float x, int64_t count)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++) to[i] = x * from[i] + y * to[i];
}

static void ortho_step(struct ortho *o)
{
    float *made = o->y;
    ortho_turn(o);
    panels_multiply(&(struct panels){o->x, o->turned, o->a, o->m, o->n, o->m});
    panels_multiply(&(struct panels){o->a, o->a, o->b, o->m, o->m, o->m});
    ortho_blend(o->b, (float)ORTHOGONALIZE_C, o->a, (float)ORTHOGONALIZE_B, o->m * o->m);
    panels_multiply(&(struct panels){o->b, o->x, made, o->m, o->m, o->n});
    ortho_blend(made, 1, o->x, (float)ORTHOGONALIZE_A, o->m * o->n);
    o->y = o->x;
    o->x = made;
}

struct orthogonal orthogonal_layout(int64_t rows, int64_t columns)
{
    int64_t m = shorter(rows, columns);
    return (struct orthogonal){.rows = m, .count = m * longer(rows, columns), .turned = rows > columns};
}

struct orthogonal orthogonalize(float *scratch, int64_t rows, int64_t columns, double squares)
{
    struct ortho o = ortho_open(scratch, rows, columns);
    ortho_begin(&o, rows, columns, (float)(1 / (sqrt(squares) + ORTHOGONALIZE_EPS)));
    for (int step = 0; step < ORTHOGONALIZE_STEPS; step++) ortho_step(&o);
    struct orthogonal made = orthogonal_layout(rows, columns);
    made.x = o.x;
    return made;
}

float orthogonal_at(const struct orthogonal *made, int64_t row, int64_t column)
{
    int64_t i = made->turned ? column : row, k = made->turned ? row : column;
    return made->x[(k / PANEL * made->rows + i) * PANEL + k % PANEL];
}

int64_t orthogonalize_stride(int64_t numbers)
{
    return (int64_t)align_up((size_t)numbers, ORTHOGONALIZE_UNIT);
}

/* A product of matrices of 4 m columns then has 128 tiles of 128 x 128. */
#define BATCH_NUMBERS (INT64_C(1) << 23)
#define BATCH_MOST 64

int orthogonalize_batch(int64_t rows, int64_t columns, int alike)
{
    int64_t most = BATCH_NUMBERS / orthogonalize_stride(rows * columns);
    if (most > BATCH_MOST) most = BATCH_MOST;
    if (most > alike) most = alike;
    return most > 1 ? (int)most : 1;
}

#define PRODUCT_BYTES ((size_t)32 << 20)

static size_t take(size_t *end, size_t bytes)
{
    size_t at = *end;
    *end += align_up(bytes, 256);
    return at;
}

struct orthogonalize_rooms orthogonalize_rooms(int64_t rows, int64_t columns, int batch)
{
    int64_t m = rows < columns ? rows : columns;
    size_t numbers = (size_t)(batch * orthogonalize_stride(rows * columns)), end = 0;
    size_t squares = (size_t)(batch * orthogonalize_stride(m * m));
    struct orthogonalize_rooms rooms = {0};
    rooms.input = take(&end, 4 * numbers);
    rooms.x = take(&end, 2 * numbers);
    rooms.y = take(&end, 2 * numbers);
    rooms.a = take(&end, 2 * squares);
    rooms.b = take(&end, 2 * squares);
    rooms.products = take(&end, PRODUCT_BYTES);
    rooms.end = end;
    return rooms;
}
