/* attention_cpu.c: attention in fp32, one head of one group at a time, on threads. Products are panel
 * products (panel_product.h) of blocks of queries with all keys. A matrix is cut into panels of PANEL
 * columns, one behind the other; sizes are rounded up to whole panels, with zeros behind the matrix. */
#include "kernels/attention/attention.h"

#include <math.h>
#include <string.h>

#include "base/align.h"
#include "base/openmp.h"
#include "kernels/cpu.h"
#include "kernels/support/exp.h"
#include "kernels/support/panel_product.h"

#define QUERIES 64           /* of a block */
#define PIECES 64            /* of the groups, at most: each has its sums of the bias table */

/* A row of a block's matrix: `panels` parts of PANEL columns, `pitch` apart. */
struct panel_row {
    float *at;
    int64_t pitch, panels, columns;
};

/* Adds the bias, if there is one. Columns behind the last become -inf. */
static EVERY_MACHINE(float, row_max, (const struct panel_row *r, const float *bias), (r, bias))
{
    float max = -INFINITY;
    for (int64_t panel = 0; panel < r->panels; panel++) {
        float *s = r->at + panel * r->pitch;
        int64_t left = r->columns - panel * PANEL;
        if (bias)
#pragma omp simd
            for (int i = 0; i < PANEL; i++) s[i] += bias[panel * PANEL + i];
        for (int64_t i = left; i < PANEL; i++) s[i] = -INFINITY;
#pragma omp simd reduction(max : max)
        for (int i = 0; i < PANEL; i++) max = s[i] > max ? s[i] : max;
    }
    return max;
}

/* s becomes exp(s - max), 0 behind the last column; returns the sum. */
static EVERY_MACHINE(float, row_exp, (const struct panel_row *r, float max), (r, max))
{
    float sum = 0;
    for (int64_t panel = 0; panel < r->panels; panel++) {
        float *s = r->at + panel * r->pitch;
        int64_t left = r->columns - panel * PANEL;
#pragma omp simd
        for (int i = 0; i < PANEL; i++) s[i] = exp_of(s[i] - max);
        for (int64_t i = left; i < PANEL; i++) s[i] = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < PANEL; i++) sum += s[i];
    }
    return sum;
}

/* d becomes p * (d - delta). */
static EVERY_MACHINE(void, row_gradient, (const struct panel_row *p, float *d, float delta), (p, d, delta))
{
    for (int64_t panel = 0; panel < p->panels; panel++) {
        const float *value = p->at + panel * p->pitch;
        float *to = d + panel * p->pitch;
#pragma omp simd
        for (int i = 0; i < PANEL; i++) to[i] = value[i] * (to[i] - delta);
    }
}

static EVERY_MACHINE(float, line_dot, (const float *a, const float *b, int64_t count), (a, b, count))
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static EVERY_MACHINE(void, line_scale, (float *line, float factor, int64_t count), (line, factor, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) line[i] *= factor;
}

/* A thread's memory. Panels of columns: keys_t, values_t have a row for each channel, the others one for each
 * token. */
struct room {
    float *keys_t, *values_t, *keys, *values, *d_keys, *d_values;
    float *q, *d_y;                        /* [QUERIES, size] */
    float *q_panels, *d_y_panels, *out;    /* [panels, QUERIES, PANEL] */
    float *scores, *d_scores;              /* likewise, of keys */
    float *bias;                           /* [tokens, PANEL times panels of keys] */
    float *line;                           /* [size] */
    int *region;                           /* [tokens] */
};

/* One task's: a head of some groups. */
struct work {
    const struct call *call;
    struct attention_plane plane;
    panel_multiply *multiply;
    float scale;
    int64_t key_panels, size_panels, rows;   /* rows: tokens in whole panels */
    int64_t group, head;
    struct room room;
};

static struct work work_open(const struct call *call)
{
    struct work w = {.call = call, .plane = attention_plane(call), .multiply = panel_multiply_here()};
    w.scale = (float)attention_scale(&w.plane);
    w.key_panels = pieces(w.plane.tokens, PANEL);
    w.size_panels = pieces(w.plane.size, PANEL);
    w.rows = w.key_panels * PANEL;
    return w;
}

/* The number of floats that a thread's room takes, from `memory` on, unless that is NULL. */
static size_t room_open(struct work *w, float *memory)
{
    struct room *r = &w->room;
    bool backward = w->call->phase == PHASE_BACKWARD;
    int64_t across = w->key_panels * w->plane.size * PANEL, along = w->size_panels * w->rows * PANEL;
    int64_t block = w->size_panels * QUERIES * PANEL, scores = w->key_panels * QUERIES * PANEL;
    const struct {
        float **at;
        int64_t count;
        bool wanted;
    } parts[] = {
        {&r->keys_t, across, true}, {&r->values, along, !backward}, {&r->values_t, across, backward},
        {&r->keys, along, backward}, {&r->d_keys, along, backward}, {&r->d_values, along, backward},
        {&r->q, QUERIES * w->plane.size, true}, {&r->d_y, QUERIES * w->plane.size, backward},
        {&r->q_panels, block, backward}, {&r->d_y_panels, block, backward}, {&r->out, block, true},
        {&r->scores, scores, true}, {&r->d_scores, scores, backward},
        {&r->bias, w->plane.tokens * w->rows, w->plane.window > 0}, {&r->line, w->plane.size, true},
        {(float **)&r->region, w->plane.tokens, true},
    };
    size_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].wanted) continue;
        if (memory) *parts[i].at = memory + total;
        total += align_up((size_t)parts[i].count, 16);
    }
    return total;
}

enum part { QUERY, KEY, VALUE };

static int64_t part_at(const struct work *w, enum part part, int64_t token)
{
    const struct attention_plane *p = &w->plane;
    int64_t pixel = attention_token(p, w->group, token).pixel;
    return ((pixel * 3 + part) * p->heads + w->head) * p->size;
}

/* A row of panels. */
static void row_place(const struct work *w, float *panels, int64_t rows, int64_t row, const float *line)
{
    for (int64_t panel = 0; panel < w->size_panels; panel++) {
        float *to = panels + (panel * rows + row) * PANEL;
        int64_t count = min_count(PANEL, w->plane.size - panel * PANEL);
        for (int64_t i = 0; i < PANEL; i++) to[i] = i < count ? line[panel * PANEL + i] : 0;
    }
}

static void row_fetch(const struct work *w, const float *panels, int64_t rows, int64_t row, float *line)
{
    for (int64_t c = 0; c < w->plane.size; c++)
        line[c] = panels[(c / PANEL * rows + row) * PANEL + c % PANEL];
}

/* A part of all tokens as panels of channels, of tokens, or both; NULL: not. */
static void part_load(const struct work *w, enum part part, float *by_channel, float *by_token)
{
    int64_t size = w->plane.size;
    if (by_token) memset(by_token, 0, (size_t)(w->size_panels * w->rows * PANEL) * sizeof(float));
    if (by_channel) memset(by_channel, 0, (size_t)(w->key_panels * size * PANEL) * sizeof(float));
    for (int64_t token = 0; token < w->plane.tokens; token++) {
        const float *line = block_load(&w->call->x[0], part_at(w, part, token), size, w->room.line);
        if (by_token) row_place(w, by_token, w->rows, token, line);
        float *column = by_channel + token / PANEL * size * PANEL + token % PANEL;
        for (int64_t c = 0; by_channel && c < size; c++) column[c * PANEL] = line[c];
    }
}

/* Queries of a block, times the scale; with zeros up to whole rows of a product. */
static int64_t block_load_queries(const struct work *w, int64_t first, int64_t count)
{
    int64_t size = w->plane.size, rows = (int64_t)align_up((size_t)count, PANEL_ROWS);
    for (int64_t i = 0; i < count; i++) {
        float *line = w->room.q + i * size;
        const float *from = block_load(&w->call->x[0], part_at(w, QUERY, first + i), size, line);
        if (from != line) memcpy(line, from, (size_t)size * sizeof *line);
        line_scale(line, w->scale, size);
    }
    memset(w->room.q + count * size, 0, (size_t)((rows - count) * size) * sizeof(float));
    return rows;
}

/* Products of a block's lines [QUERIES, size] with every token's. */
static void block_times(const struct work *w, const float *lines, const float *by_channel, int64_t rows,
                        float *to)
{
    for (int64_t panel = 0; panel < w->key_panels; panel++)
        w->multiply(&(struct panel_product){
            .a = lines, .row = w->plane.size, .step = 1, .b = by_channel + panel * w->plane.size * PANEL,
            .y = to + panel * QUERIES * PANEL, .rows = rows, .depth = w->plane.size});
}

/* out = scores times the tokens' lines. */
static void block_mix(const struct work *w, const float *scores, const float *by_token, int64_t rows)
{
    for (int64_t part = 0; part < w->size_panels; part++)
        for (int64_t panel = 0; panel < w->key_panels; panel++)
            w->multiply(&(struct panel_product){
                .a = scores + panel * QUERIES * PANEL, .row = PANEL, .step = 1,
                .b = by_token + (part * w->rows + panel * PANEL) * PANEL,
                .y = w->room.out + part * QUERIES * PANEL, .rows = rows, .depth = PANEL, .add = panel > 0});
}

/* sums = the transposed scores times the block's lines, added to those of earlier blocks. */
static void block_collect(const struct work *w, const float *scores, const float *panels, int64_t rows,
                          bool add, float *sums)
{
    for (int64_t part = 0; part < w->size_panels; part++)
        for (int64_t panel = 0; panel < w->key_panels; panel++)
            w->multiply(&(struct panel_product){
                .a = scores + panel * QUERIES * PANEL, .row = 1, .step = PANEL,
                .b = panels + part * QUERIES * PANEL, .y = sums + (part * w->rows + panel * PANEL) * PANEL,
                .rows = PANEL, .depth = rows, .add = add});
}

static struct panel_row score_row(const struct work *w, float *scores, int64_t row)
{
    return (struct panel_row){scores + row * PANEL, QUERIES * PANEL, w->key_panels, w->plane.tokens};
}

/* The head's bias of each pair of tokens. */
static void bias_load(const struct work *w)
{
    const struct attention_plane *p = &w->plane;
    for (int64_t i = 0; p->window > 0 && i < p->tokens; i++)
        for (int64_t j = 0; j < w->rows; j++) {
            int64_t row = j < p->tokens ? attention_bias_row(p->window, i, j) : -1;
            w->room.bias[i * w->rows + j] =
                row < 0 ? 0 : ((const float *)w->call->params[0].data)[row * p->heads + w->head];
        }
}

static bool regions_load(const struct work *w)
{
    int *region = w->room.region;
    bool differ = false;
    for (int64_t i = 0; i < w->plane.tokens; i++) {
        region[i] = attention_token(&w->plane, w->group, i).region;
        differ |= region[i] != region[0];
    }
    return differ;
}

/* The bias of a query is added to its row. */
static float row_open(const struct work *w, int64_t query, const struct panel_row *row, bool apart)
{
    const float *bias = w->plane.window > 0 ? w->room.bias + query * w->rows : NULL;
    for (int64_t j = 0; apart && j < w->plane.tokens; j++)
        if (w->room.region[j] != w->room.region[query])
            row->at[j / PANEL * row->pitch + j % PANEL] += ATTENTION_APART;
    return row_max(row, bias);
}

static int64_t lse_at(const struct work *w, int64_t query)
{
    return w->head * attention_pixels(&w->plane) + attention_token(&w->plane, w->group, query).pixel;
}

static void forward_row(const struct work *w, int64_t query, int64_t row, bool apart, float *sums)
{
    const struct call *call = w->call;
    struct panel_row scores = score_row(w, w->room.scores, row);
    float max = row_open(w, query, &scores, apart);
    sums[row] = row_exp(&scores, max);
    if (call->phase == PHASE_FORWARD && call->training)
        ((float *)call->saved[ATTENTION_LSE].data)[lse_at(w, query)] = max + logf(sums[row]);
}

static void store_y(const struct work *w, int64_t query, int64_t row, float sum)
{
    const struct attention_plane *p = &w->plane;
    int64_t pixel = attention_token(p, w->group, query).y_pixel;
    if (pixel < 0) return;
    row_fetch(w, w->room.out, QUERIES, row, w->room.line);
    line_scale(w->room.line, 1 / sum, p->size);
    int64_t at = (pixel * p->heads + w->head) * p->size;
    dtype_convert(w->call->y.dtype, block_address(&w->call->y, at), F32, w->room.line, (size_t)p->size);
}

static void forward_group(struct work *w)
{
    float sums[QUERIES];
    bool apart = regions_load(w);
    part_load(w, KEY, w->room.keys_t, NULL);
    part_load(w, VALUE, NULL, w->room.values);
    for (int64_t first = 0; first < w->plane.tokens; first += QUERIES) {
        int64_t count = min_count(QUERIES, w->plane.tokens - first);
        int64_t rows = block_load_queries(w, first, count);
        block_times(w, w->room.q, w->room.keys_t, rows, w->room.scores);
        for (int64_t i = 0; i < count; i++) forward_row(w, first + i, i, apart, sums);
        block_mix(w, w->room.scores, w->room.values, rows);
        for (int64_t i = 0; i < count; i++) store_y(w, first + i, i, sums[i]);
    }
}

/* The gradients of a block's outputs, and their products with the outputs. */
static void block_load_gradients(const struct work *w, int64_t first, int64_t count, int64_t rows,
                                 float *deltas)
{
    const struct attention_plane *p = &w->plane;
    memset(w->room.d_y, 0, (size_t)(rows * p->size) * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        int64_t pixel = attention_token(p, w->group, first + i).y_pixel;
        int64_t at = (pixel * p->heads + w->head) * p->size;
        float *line = w->room.d_y + i * p->size;
        deltas[i] = 0;
        if (pixel < 0) continue;
        dtype_convert(F32, line, w->call->d_y.dtype, block_address(&w->call->d_y, at), (size_t)p->size);
        deltas[i] = line_dot(line, block_load(&w->call->y, at, p->size, w->room.line), p->size);
    }
    for (int64_t i = 0; i < rows; i++) {
        row_place(w, w->room.d_y_panels, QUERIES, i, w->room.d_y + i * p->size);
        row_place(w, w->room.q_panels, QUERIES, i, w->room.q + i * p->size);
    }
}

static void add_to_table(const struct work *w, int64_t query, int64_t row, float *table)
{
    const struct attention_plane *p = &w->plane;
    const float *from = w->room.d_scores + row * PANEL;
    for (int64_t j = 0; j < p->tokens; j++)
        table[attention_bias_row(p->window, query, j) * p->heads + w->head] +=
            from[j / PANEL * QUERIES * PANEL + j % PANEL];
}

/* Rows behind the last query become 0. */
static void backward_rows(const struct work *w, int64_t first, int64_t count, int64_t rows, bool apart,
                          const float *deltas, float *table)
{
    for (int64_t i = 0; i < rows; i++) {
        struct panel_row scores = score_row(w, w->room.scores, i);
        if (i < count) {
            row_open(w, first + i, &scores, apart);
            row_exp(&scores, ((const float *)w->call->saved[ATTENTION_LSE].data)[lse_at(w, first + i)]);
        }
        for (int64_t panel = 0; i >= count && panel < w->key_panels; panel++)
            memset(scores.at + panel * scores.pitch, 0, PANEL * sizeof(float));
        row_gradient(&scores, w->room.d_scores + i * PANEL, i < count ? deltas[i] : 0);
        if (table && i < count) add_to_table(w, first + i, i, table);
    }
}

static void store_part(const struct work *w, enum part part, int64_t token, const float *panels,
                       int64_t rows, int64_t row, float factor)
{
    row_fetch(w, panels, rows, row, w->room.line);
    line_scale(w->room.line, factor, w->plane.size);
    const struct tensor *d_x = &w->call->d_x[0];
    dtype_convert(d_x->dtype, block_address(d_x, part_at(w, part, token)), F32, w->room.line,
                  (size_t)w->plane.size);
}

static void backward_group(struct work *w, float *table)
{
    float deltas[QUERIES];
    bool apart = regions_load(w), wanted = w->call->d_x[0].data;
    part_load(w, KEY, w->room.keys_t, w->room.keys);
    part_load(w, VALUE, w->room.values_t, NULL);
    for (int64_t first = 0; first < w->plane.tokens; first += QUERIES) {
        int64_t count = min_count(QUERIES, w->plane.tokens - first);
        int64_t rows = block_load_queries(w, first, count);
        block_load_gradients(w, first, count, rows, deltas);
        block_times(w, w->room.q, w->room.keys_t, rows, w->room.scores);
        block_times(w, w->room.d_y, w->room.values_t, rows, w->room.d_scores);
        backward_rows(w, first, count, rows, apart, deltas, table);
        if (!wanted) continue;
        block_collect(w, w->room.scores, w->room.d_y_panels, rows, first > 0, w->room.d_values);
        block_collect(w, w->room.d_scores, w->room.q_panels, rows, first > 0, w->room.d_keys);
        block_mix(w, w->room.d_scores, w->room.keys, rows);
        for (int64_t i = 0; i < count; i++)
            store_part(w, QUERY, first + i, w->room.out, QUERIES, i, w->scale);
    }
    for (int64_t token = 0; wanted && token < w->plane.tokens; token++) {
        store_part(w, KEY, token, w->room.d_keys, w->rows, token, 1);
        store_part(w, VALUE, token, w->room.d_values, w->rows, token, 1);
    }
}

static int64_t table_elements(const struct call *call)
{
    bool sums = call->phase == PHASE_BACKWARD && call->param_count > 0;
    return sums ? shape_count(call->params[0].shape) : 0;
}

/* Groups of a piece: these depend on the shape only. */
static int64_t groups_each(const struct attention_plane *p) { return pieces(p->groups, PIECES); }

static size_t attention_cpu_workspace(const struct call *call)
{
    struct work w = work_open(call);
    int64_t count = pieces(w.plane.groups, groups_each(&w.plane)), table = table_elements(call);
    return ((size_t)omp_get_max_threads() * room_open(&w, NULL) + (size_t)(count * table)) * sizeof(float);
}

static void run_piece(struct work *w, int64_t piece, float *table)
{
    int64_t each = groups_each(&w->plane);
    bias_load(w);
    for (w->group = piece * each; w->group < min_count((piece + 1) * each, w->plane.groups); w->group++) {
        if (w->call->phase == PHASE_BACKWARD) backward_group(w, table);
        else forward_group(w);
    }
}

static void table_total(const struct call *call, const float *tables, int64_t count)
{
    int64_t elements = table_elements(call);
    for (int64_t i = 0; i < elements && call->d_params[0].data; i++) {
        double sum = 0;
        for (int64_t piece = 0; piece < count; piece++) sum += tables[piece * elements + i];
        tensor_set(&call->d_params[0], i, sum);
    }
}

static enum status attention_cpu_run(const struct call *call)
{
    struct work opened = work_open(call);
    int64_t count = pieces(opened.plane.groups, groups_each(&opened.plane)), table = table_elements(call);
    size_t room = room_open(&opened, NULL);
    float *tables = call->workspace, *rooms = tables + count * table;
    memset(tables, 0, (size_t)(count * table) * sizeof *tables);
#pragma omp parallel for collapse(2) schedule(dynamic) if (shape_count(call->x[0].shape) > PARALLEL)
    for (int64_t piece = 0; piece < count; piece++)
        for (int64_t head = 0; head < opened.plane.heads; head++) {
            struct work w = opened;
            w.head = head;
            room_open(&w, rooms + (size_t)omp_get_thread_num() * room);
            run_piece(&w, piece, table > 0 ? tables + piece * table : NULL);
        }
    table_total(call, tables, count);
    return OK;
}

const struct op_code attention_cpu = {
    .workspace = attention_cpu_workspace,
    .forward = attention_cpu_run,
    .backward = attention_cpu_run,
    .recompute = attention_cpu_run,
};
