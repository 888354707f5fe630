/* attention_cpu.c: attention in fp32, one head of one group at a time, on threads. Products are panel
 * products (panel_product.h) of blocks of queries with all keys. Rows and columns of matrices are rounded up
 * to whole vectors; what lies behind a matrix never reaches a result. */
#include "kernels/attention/attention.h"

#include <math.h>
#include <string.h>

#include "base/align.h"
#include "base/openmp.h"
#include "kernels/cpu.h"
#include "kernels/support/exp.h"
#include "kernels/support/panel_product.h"
#include "kernels/support/pixels_cpu.h"

#define QUERIES 104          /* of a block, at most: 197 tokens are two */
#define AHEAD 8              /* tokens whose lines are prefetched */
#define PIECES 64            /* of the groups, at most: each has its sums of the bias table */

/* The scores of a query, with a column for each key. NULL: no bias, all keys in the query's region. */
struct score_row {
    float *scores;
    const float *bias;
    const int *regions;
    int region;
    int64_t tokens, columns;
};

/* e^x; 0 where its products would be denormal numbers, which take long. */
INLINE float share_of(float x) { return x < -87 ? 0 : exp_of(x); }

/* Adds the bias; columns behind the last token become -inf. */
INLINE void row_open(const struct score_row *r)
{
    if (r->bias)
#pragma omp simd
        for (int64_t j = 0; j < r->columns; j++) r->scores[j] += r->bias[j];
    if (r->regions)
#pragma omp simd
        for (int64_t j = 0; j < r->columns; j++)
            r->scores[j] += r->regions[j] == r->region ? 0 : ATTENTION_APART;
    float *end = r->scores + r->columns - PANEL_STEP;
    int used = PANEL_STEP - (int)(r->columns - r->tokens);
#pragma omp simd
    for (int i = 0; i < PANEL_STEP; i++) end[i] = i < used ? end[i] : -INFINITY;
}

/* Scores become their exponentials, times exp(-max); returns the sum of those. */
static EVERY_MACHINE(float, row_softmax, (const struct score_row *r, float *max), (r, max))
{
    float *s = r->scores, most = -INFINITY, sum = 0;
    row_open(r);
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < r->columns; j++) most = s[j] > most ? s[j] : most;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < r->columns; j++) {
        s[j] = share_of(s[j] - most);
        sum += s[j];
    }
    *max = most;
    return sum;
}

/* Scores become the softmax p, and d becomes p * (d - delta). */
static EVERY_MACHINE(void, row_gradient, (const struct score_row *r, float lse, float *d, float delta),
                     (r, lse, d, delta))
{
    float *s = r->scores;
    row_open(r);
#pragma omp simd
    for (int64_t j = 0; j < r->columns; j++) {
        s[j] = share_of(s[j] - lse);
        d[j] = s[j] * (d[j] - delta);
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

#define SQUARE (PANEL_STEP * PANEL_STEP)

/* Merges both halves of a square, alternately. */
INLINE void square_merge(const float *from, float *to)
{
#pragma omp simd
    for (int i = 0; i < SQUARE / 2; i++) {
        to[2 * i] = from[i];
        to[2 * i + 1] = from[SQUARE / 2 + i];
    }
}

/* Each merging moves the highest bit of an element's index to its end: four exchange row and column. */
static EVERY_MACHINE(void, square_transpose, (const float *from, int64_t from_row, float *to, int64_t to_row,
                                              float factor), (from, from_row, to, to_row, factor))
{
    ALIGNED float a[SQUARE], b[SQUARE];
    for (int i = 0; i < PANEL_STEP; i++)
        for (int j = 0; j < PANEL_STEP; j++) a[i * PANEL_STEP + j] = from[i * from_row + j] * factor;
    square_merge(a, b);
    square_merge(b, a);
    square_merge(a, b);
    square_merge(b, a);
    for (int i = 0; i < PANEL_STEP; i++)
        for (int j = 0; j < PANEL_STEP; j++) to[i * to_row + j] = a[i * PANEL_STEP + j];
}

/* A thread's memory. Outputs and gradients take the place of what is no longer needed: y and d_q that of the
 * queries, d_v that of the values, y for a while that of d_k. */
struct room {
    float *queries, *keys, *values, *d_y, *d_keys;   /* a line for each token */
    float *keys_t, *values_t;                        /* a row for each channel */
    float *scores, *d_scores;                        /* a row for each query of a block */
    float *bias, *d_bias;                            /* a row for each token */
    float *sums;                                     /* of each query's exponentials; of d_y * y */
    int *regions, *table_rows;
    struct attention_token *tokens;
};

/* One task's: a head of some groups. */
struct work {
    const struct call *call;
    struct attention_plane plane;
    panel_multiply *multiply;
    float scale;
    int64_t keys, channels;    /* tokens, channels of a head in whole vectors */
    int64_t row, line;         /* from one row of scores, one token's line to the next */
    int64_t group, head;
    struct room room;
};

static int64_t whole(int64_t count, size_t size) { return (int64_t)align_up((size_t)count, size); }

static struct work work_open(const struct call *call)
{
    struct work w = {.call = call, .plane = attention_plane(call), .multiply = panel_multiply_here()};
    w.scale = (float)attention_scale(&w.plane);
    w.keys = whole(w.plane.tokens, PANEL_STEP);
    w.channels = whole(w.plane.size, PANEL_STEP);
    /* An odd number of the cache's lines: those of a column lie in different sets. */
    w.row = w.keys | PANEL_STEP;
    w.line = w.channels | PANEL_STEP;
    return w;
}

/* The number of floats that a thread's room takes, from `memory` on, unless that is NULL. */
static size_t room_open(struct work *w, float *memory)
{
    struct room *r = &w->room;
    bool backward = w->call->phase == PHASE_BACKWARD, biased = w->plane.window > 0;
    int64_t lines = w->keys * w->line, across = w->channels * w->row, block = QUERIES * w->row;
    const struct {
        void *at;
        int64_t count;
        bool wanted;
    } parts[] = {
        {&r->queries, lines, true}, {&r->keys, lines, true}, {&r->values, lines, true},
        {&r->d_y, lines, backward}, {&r->d_keys, lines, backward},
        {&r->keys_t, across, true}, {&r->values_t, across, backward},
        {&r->scores, block, true}, {&r->d_scores, block, backward},
        {&r->bias, w->keys * w->row, biased}, {&r->d_bias, w->keys * w->row, biased && backward},
        {&r->sums, w->keys, true}, {&r->regions, w->keys, true},
        {&r->table_rows, w->keys, biased},
        {&r->tokens, w->keys * (int64_t)(sizeof *r->tokens / sizeof(float)), true},
    };
    size_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].wanted) continue;
        if (memory) memcpy(parts[i].at, &(float *){memory + total}, sizeof(float *));
        total += (size_t)parts[i].count;
    }
    return total;
}

enum part { QUERY, KEY, VALUE, OUTPUT };

/* The line of a token in x or, for OUTPUT, in y; -1: y has no such token. */
static int64_t line_at(const struct work *w, enum part part, int64_t token)
{
    const struct attention_plane *p = &w->plane;
    const struct attention_token *t = &w->room.tokens[token];
    if (part == OUTPUT) return t->y_pixel < 0 ? -1 : (t->y_pixel * p->heads + w->head) * p->size;
    return ((t->pixel * 3 + part) * p->heads + w->head) * p->size;
}

static float *lse_at(const struct work *w, int64_t query)
{
    return (float *)w->call->saved[ATTENTION_LSE].data + w->head * attention_pixels(&w->plane) +
           w->room.tokens[query].pixel;
}

/* Also prefetches the line AHEAD tokens behind it, which hardware does not foresee. */
static int64_t line_next(const struct work *w, const struct tensor *tensor, enum part part, int64_t token)
{
    int64_t ahead = line_at(w, part, min_count(token + AHEAD, w->plane.tokens - 1));
    for (int64_t c = 0; ahead >= 0 && c < w->plane.size; c += 64 / (int64_t)dtype_bytes(tensor->dtype))
        __builtin_prefetch(block_address(tensor, ahead + c));
    return line_at(w, part, token);
}

/* Lines of tokens that y does not have, and those behind the last token, become 0. */
static void part_load(const struct work *w, const struct tensor *from, enum part part, float *lines)
{
    for (int64_t token = 0; token < w->keys; token++) {
        float *line = lines + token * w->line;
        int64_t at = token < w->plane.tokens ? line_next(w, from, part, token) : -1;
        if (at < 0) memset(line, 0, (size_t)w->line * sizeof *line);
        else dtype_convert(F32, line, from->dtype, block_address(from, at), (size_t)w->plane.size);
    }
}

/* A token's line times the factor, or divided by each token's divisor. */
static void part_store(const struct work *w, const struct tensor *to, enum part part, float *lines,
                       float factor, const float *divisors)
{
    for (int64_t token = 0; token < w->plane.tokens; token++) {
        float *line = lines + token * w->line;
        int64_t at = line_next(w, to, part, token);
        if (at < 0) continue;
        line_scale(line, divisors ? 1 / divisors[token] : factor, w->plane.size);
        dtype_convert(to->dtype, block_address(to, at), F32, line, (size_t)w->plane.size);
    }
}

static void transpose(const struct work *w, const float *lines, float *across, float factor)
{
    for (int64_t token = 0; token < w->keys; token += PANEL_STEP)
        for (int64_t c = 0; c < w->channels; c += PANEL_STEP)
            square_transpose(lines + token * w->line + c, w->line, across + c * w->row + token, w->row,
                             factor);
}

/* Products of `rows` lines from `first` on with every token's. */
static void block_times(const struct work *w, const float *lines, int64_t first, int64_t rows,
                        const float *across, float *to)
{
    w->multiply(&(struct panel_product){
        .a = lines + first * w->line, .row = w->line, .step = 1, .b = across, .b_row = w->row,
        .y = to, .y_row = w->row, .rows = rows, .columns = w->keys, .depth = w->plane.size});
}

/* to, from line `first` on, = scores times the tokens' lines. */
static void block_mix(const struct work *w, const float *scores, const float *lines, int64_t first,
                      int64_t rows, float *to)
{
    w->multiply(&(struct panel_product){
        .a = scores, .row = w->row, .step = 1, .b = lines, .b_row = w->line, .y = to + first * w->line,
        .y_row = w->line, .rows = rows, .columns = w->channels, .depth = w->plane.tokens});
}

/* sums = the transposed scores times the block's lines, added to those of earlier blocks. */
static void block_collect(const struct work *w, const float *scores, const float *lines, int64_t first,
                          int64_t count, float *sums)
{
    w->multiply(&(struct panel_product){
        .a = scores, .row = 1, .step = w->row, .b = lines + first * w->line, .b_row = w->line, .y = sums,
        .y_row = w->line, .rows = whole(w->plane.tokens, PANEL_ROWS), .columns = w->channels, .depth = count,
        .add = first > 0});
}

static int64_t table_at(const struct work *w, int64_t query, int64_t key)
{
    const int *rows = w->room.table_rows;
    return (rows[query] - rows[key] + rows[0]) * w->plane.heads + w->head;
}

/* The head's bias of each pair of tokens. */
static void bias_open(const struct work *w)
{
    const struct attention_plane *p = &w->plane;
    const struct room *r = &w->room;
    if (p->window == 0) return;
    for (int64_t i = 0; i < p->tokens; i++) r->table_rows[i] = (int)attention_bias_row(p->window, i, 0);
    for (int64_t i = 0; i < p->tokens; i++)
        for (int64_t j = 0; j < p->tokens; j++)
            r->bias[i * w->row + j] = ((const float *)w->call->params[0].data)[table_at(w, i, j)];
    if (r->d_bias) memset(r->d_bias, 0, (size_t)(p->tokens * w->row) * sizeof *r->d_bias);
}

static void bias_close(const struct work *w, float *table)
{
    const struct attention_plane *p = &w->plane;
    for (int64_t i = 0; w->room.d_bias && i < p->tokens; i++)
        for (int64_t j = 0; j < p->tokens; j++) table[table_at(w, i, j)] += w->room.d_bias[i * w->row + j];
}

/* True if they lie in several regions. */
static bool tokens_load(const struct work *w)
{
    bool differ = false;
    for (int64_t i = 0; i < w->plane.tokens; i++) {
        w->room.tokens[i] = attention_token(&w->plane, w->group, i);
        w->room.regions[i] = w->room.tokens[i].region;
        differ |= w->room.regions[i] != w->room.regions[0];
    }
    return differ;
}

/* Queries, keys, also as rows of channels, and values; whether tokens lie in several regions. */
static bool group_load(const struct work *w)
{
    const struct room *r = &w->room;
    bool differ = tokens_load(w);
    part_load(w, &w->call->x[0], QUERY, r->queries);
    part_load(w, &w->call->x[0], KEY, r->keys);
    part_load(w, &w->call->x[0], VALUE, r->values);
    transpose(w, r->keys, r->keys_t, w->scale);
    return differ;
}

static struct score_row score_row(const struct work *w, int64_t query, int64_t row, bool apart)
{
    const struct room *r = &w->room;
    return (struct score_row){r->scores + row * w->row, r->bias ? r->bias + query * w->row : NULL,
                              apart ? r->regions : NULL, r->regions[query], w->plane.tokens, w->keys};
}

static void forward_row(const struct work *w, int64_t query, int64_t row, bool apart)
{
    struct score_row scores = score_row(w, query, row, apart);
    float max;
    w->room.sums[query] = row_softmax(&scores, &max);
    if (w->call->phase == PHASE_FORWARD && w->call->training)
        *lse_at(w, query) = max + logf(w->room.sums[query]);
}

static void forward_group(struct work *w)
{
    const struct room *r = &w->room;
    bool apart = group_load(w);
    for (int64_t first = 0; first < w->plane.tokens; first += QUERIES) {
        int64_t count = min_count(QUERIES, w->plane.tokens - first), rows = whole(count, PANEL_ROWS);
        block_times(w, r->queries, first, rows, r->keys_t, r->scores);
        for (int64_t i = 0; i < count; i++) forward_row(w, first + i, i, apart);
        block_mix(w, r->scores, r->values, first, rows, r->queries);
    }
    part_store(w, &w->call->y, OUTPUT, r->queries, 1, r->sums);
}

static void backward_row(const struct work *w, int64_t query, int64_t row, bool apart)
{
    struct score_row scores = score_row(w, query, row, apart);
    float *d_scores = w->room.d_scores + row * w->row;
    row_gradient(&scores, *lse_at(w, query), d_scores, w->room.sums[query]);
    if (w->room.d_bias) pixels_add(d_scores, w->room.d_bias + query * w->row, w->keys);
}

static void backward_group(struct work *w)
{
    const struct room *r = &w->room;
    bool apart = group_load(w);
    part_load(w, &w->call->d_y, OUTPUT, r->d_y);
    part_load(w, &w->call->y, OUTPUT, r->d_keys);
    for (int64_t i = 0; i < w->plane.tokens; i++)
        r->sums[i] = line_dot(r->d_y + i * w->line, r->d_keys + i * w->line, w->plane.size);
    transpose(w, r->values, r->values_t, 1);
    for (int64_t first = 0; first < w->plane.tokens; first += QUERIES) {
        int64_t count = min_count(QUERIES, w->plane.tokens - first), rows = whole(count, PANEL_ROWS);
        block_times(w, r->queries, first, rows, r->keys_t, r->scores);
        block_times(w, r->d_y, first, rows, r->values_t, r->d_scores);
        for (int64_t i = 0; i < count; i++) backward_row(w, first + i, i, apart);
        block_collect(w, r->scores, r->d_y, first, count, r->values);
        block_collect(w, r->d_scores, r->queries, first, count, r->d_keys);
        block_mix(w, r->d_scores, r->keys, first, rows, r->queries);
    }
    const struct tensor *d_x = &w->call->d_x[0];
    if (!d_x->data) return;
    part_store(w, d_x, QUERY, r->queries, w->scale, NULL);
    part_store(w, d_x, KEY, r->d_keys, w->scale, NULL);
    part_store(w, d_x, VALUE, r->values, 1, NULL);
}

static int64_t table_elements(const struct call *call)
{
    bool sums = call->phase == PHASE_BACKWARD && call->param_count > 0;
    return sums ? shape_count(call->params[0].shape) : 0;
}

/* Groups of a piece: these depend on the shape only. */
static int64_t groups_each(const struct attention_plane *p) { return pieces(p->groups, PIECES); }

/* Floats of the tables of all pieces, which stand before the threads' rooms. */
static size_t tables_room(const struct work *w)
{
    int64_t count = pieces(w->plane.groups, groups_each(&w->plane));
    return align_up((size_t)(count * table_elements(w->call)), PANEL_STEP);
}

static size_t attention_cpu_workspace(const struct call *call)
{
    struct work w = work_open(call);
    return ((size_t)omp_get_max_threads() * room_open(&w, NULL) + tables_room(&w)) * sizeof(float);
}

static void run_piece(struct work *w, int64_t piece, float *table)
{
    int64_t each = groups_each(&w->plane);
    bias_open(w);
    for (w->group = piece * each; w->group < min_count((piece + 1) * each, w->plane.groups); w->group++) {
        if (w->call->phase == PHASE_BACKWARD) backward_group(w);
        else forward_group(w);
    }
    bias_close(w, table);
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
    float *tables = call->workspace, *rooms = tables + tables_room(&opened);
    memset(tables, 0, tables_room(&opened) * sizeof *tables);
#pragma omp parallel for collapse(2) schedule(guided) if (shape_count(call->x[0].shape) > PARALLEL)
    for (int64_t piece = 0; piece < count; piece++)
        for (int64_t head = 0; head < opened.plane.heads; head++) {
            struct work w = opened;
            w.head = head;
            room_open(&w, rooms + (size_t)omp_get_thread_num() * room);
            run_piece(&w, piece, tables + piece * table);
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
