/* attention: softmax attention of several heads (Vaswani et al. 2017) on queries, keys and values that lie
 * beside each other in a token's channels: x is n, h, w, 3 x heads x size; y is n, h, w, heads x size. For
 * each head and each group of tokens, i and j being tokens of the group:
 *
 *     score_ij = q_i . k_j / sqrt(size) + bias_ij,   p_ij = exp(score_ij - lse_i)
 *     y_i = sum over j p_ij v_j,   lse_i = log(sum over j exp(score_ij))
 *
 * A group is an image, without bias; or, with window=W, W x W tokens of the map of h x w. These have as bias
 * relative_position_bias_table[(dh + W - 1) * (2 W - 1) + dw + W - 1][head], dh and dw being the row and the
 * column of i less those of j (Liu et al. 2021, Swin). With shift=S the map is first rolled by -S in both
 * directions, and tokens that are neighbours only by that get ATTENTION_APART as well; in a direction of one
 * window there is no shift.
 *
 * A map that is not a whole number of windows is padded before queries, keys and values are computed from it,
 * as torchvision does; the second input is a map as it was before, and y has its h and w.
 *
 * Backward:
 *     d_v_j = sum over i p_ij d_y_i
 *     d_score_ij = p_ij (d_y_i . v_j - d_y_i . y_i),   d_bias_ij = d_score_ij
 *     d_q_i = sum over j d_score_ij k_j / sqrt(size),   d_k_j = sum over i d_score_ij q_i / sqrt(size)
 *
 * The matrix p is never stored. */
#include "kernels/attention/attention.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/codes_cuda.h"

static bool attention_windows(const struct attention *s, int x_count, const struct shape *x,
                              struct reason *reason)
{
    char text[SHAPE_TEXT];
    if (s->shift >= s->window && s->shift > 0)
        return because(reason, "shift=%lld is not below window=%lld", (long long)s->shift,
                       (long long)s->window);
    if (s->window == 0) return x_count == 1 || because(reason, "a second input is for windows only");
    if (x->h % s->window != 0 || x->w % s->window != 0)
        return because(reason, "%s is not a whole number of windows of %lldx%lld; pad it first",
                       shape_text(*x, text), (long long)s->window, (long long)s->window);
    struct shape kept = x[x_count - 1];
    if (kept.n != x->n || kept.h > x->h || kept.w > x->w)
        return because(reason, "the second input, %s, is larger than the first", shape_text(kept, text));
    return true;
}

static bool attention_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                            struct reason *reason)
{
    const struct attention *s = settings;
    if (x->c % (3 * s->heads) != 0)
        return because(reason, "%lld channels are not queries, keys and values of %lld heads",
                       (long long)x->c, (long long)s->heads);
    if (!attention_windows(s, x_count, x, reason)) return false;
    *y = shape_nhwc(x->n, x[x_count - 1].h, x[x_count - 1].w, x->c / 3);
    return true;
}

static int attention_params(const void *settings, int x_count, const struct shape *x,
                            struct op_param out[OP_MAX_PARAMS])
{
    const struct attention *s = settings;
    if (s->window == 0) return 0;
    int64_t wide = 2 * s->window - 1;
    struct shape table = {.rank = 2, .dim = {wide * wide, s->heads, 1, 1}};
    out[0] = (struct op_param){"relative_position_bias_table", table, ROLE_BIAS, F32, INIT_TRUNCATED_NORMAL,
                               0.02, 0, 0};
    return 1;
}

static int attention_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                           struct op_saved out[OP_MAX_SAVED])
{
    const struct attention *s = settings;
    struct shape shape = x[0].shape;
    if (!training) return 0;
    out[ATTENTION_LSE] = (struct op_saved){"lse", F32, shape_vector(s->heads * shape.n * shape.h * shape.w)};
    return ATTENTION_SAVED;
}

/* Forward is repeated to recompute y. */
static unsigned attention_reads(const void *settings, enum phase phase)
{
    if (phase == PHASE_RECOMPUTE) return READS_X;
    return READS_FIRST_X | READS_Y | READS_PARAMS | READS_SAVED;
}

/* Scores, and what they weight; exponentials are not counted. */
static double attention_macs(const void *settings, const struct shape *x)
{
    const struct attention *s = settings;
    double tokens = (double)(x->h * x->w), others = tokens;
    if (s->window > 0) others = (double)(s->window * s->window);
    return 2 * (double)x->n * tokens * others * (double)(x->c / 3);
}

static bool attention_no_gradient(int input) { return input == 1; }

/* One head of one group; q, k and v are those of its tokens, [tokens, size]. */
struct head_group {
    const struct call *call;
    struct attention_plane plane;
    int64_t group, head;
};

enum part { QUERY, KEY, VALUE };

static int64_t part_at(const struct head_group *g, enum part part, int64_t token)
{
    const struct attention_plane *p = &g->plane;
    int64_t pixel = attention_token(p, g->group, token).pixel;
    return (pixel * 3 + part) * p->heads * p->size + g->head * p->size;
}

/* -1: y does not have the token. */
static int64_t y_at(const struct head_group *g, int64_t token)
{
    const struct attention_plane *p = &g->plane;
    int64_t pixel = attention_token(p, g->group, token).y_pixel;
    return pixel < 0 ? -1 : (pixel * p->heads + g->head) * p->size;
}

static int64_t lse_at(const struct head_group *g, int64_t token)
{
    return g->head * attention_pixels(&g->plane) + attention_token(&g->plane, g->group, token).pixel;
}

static double dot(const struct tensor *a, int64_t at_a, const struct tensor *b, int64_t at_b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += tensor_get(a, at_a + i) * tensor_get(b, at_b + i);
    return sum;
}

static double bias_of(const struct head_group *g, int64_t query, int64_t key)
{
    const struct attention_plane *p = &g->plane;
    if (p->window == 0) return 0;
    bool apart = attention_token(p, g->group, query).region != attention_token(p, g->group, key).region;
    int64_t row = attention_bias_row(p->window, query, key);
    return tensor_get(&g->call->params[0], row * p->heads + g->head) + (apart ? ATTENTION_APART : 0);
}

static void score_query(const struct head_group *g, int64_t query, double *scores)
{
    const struct tensor *x = &g->call->x[0];
    int64_t q = part_at(g, QUERY, query);
    for (int64_t key = 0; key < g->plane.tokens; key++)
        scores[key] = dot(x, q, x, part_at(g, KEY, key), g->plane.size) * attention_scale(&g->plane) +
                      bias_of(g, query, key);
}

static double log_sum_exp(const double *scores, int64_t count)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) max = fmax(max, scores[i]);
    for (int64_t i = 0; i < count; i++) sum += exp(scores[i] - max);
    return max + log(sum);
}

static void forward_query(const struct head_group *g, int64_t query, double *scores)
{
    const struct call *call = g->call;
    score_query(g, query, scores);
    double lse = log_sum_exp(scores, g->plane.tokens);
    int64_t to = y_at(g, query);
    for (int64_t c = 0; to >= 0 && c < g->plane.size; c++) {
        double sum = 0;
        for (int64_t key = 0; key < g->plane.tokens; key++)
            sum += exp(scores[key] - lse) * tensor_get(&call->x[0], part_at(g, VALUE, key) + c);
        tensor_set(&call->y, to + c, sum);
    }
    if (call->phase == PHASE_FORWARD && call->training)
        tensor_set(&call->saved[ATTENTION_LSE], lse_at(g, query), lse);
}

static enum status attention_forward(const struct call *call)
{
    struct head_group g = {.call = call, .plane = attention_plane(call)};
    double *scores = memory_new((size_t)g.plane.tokens, sizeof *scores);
    for (g.group = 0; g.group < g.plane.groups; g.group++)
        for (g.head = 0; g.head < g.plane.heads; g.head++)
            for (int64_t query = 0; query < g.plane.tokens; query++) forward_query(&g, query, scores);
    free(scores);
    return OK;
}

/* Sums of a head group, [part, token, size], and those of the table. */
struct gradient_sums {
    double *parts, *table;
};

static void add_scaled(const struct head_group *g, double *sum, enum part part, int64_t token,
                       const struct tensor *from, int64_t at, double factor)
{
    double *to = sum + (part * g->plane.tokens + token) * g->plane.size;
    for (int64_t c = 0; c < g->plane.size; c++) to[c] += factor * tensor_get(from, at + c);
}

static void backward_query(const struct head_group *g, int64_t query, double *scores,
                           const struct gradient_sums *sums)
{
    const struct call *call = g->call;
    const struct tensor *x = &call->x[0], *d_y = &call->d_y;
    int64_t at = y_at(g, query), size = g->plane.size;
    if (at < 0) return;
    double delta = dot(d_y, at, &call->y, at, size), scale = attention_scale(&g->plane);
    double lse = tensor_get(&call->saved[ATTENTION_LSE], lse_at(g, query));
    score_query(g, query, scores);
    for (int64_t key = 0; key < g->plane.tokens; key++) {
        double p = exp(scores[key] - lse);
        double d_score = p * (dot(d_y, at, x, part_at(g, VALUE, key), size) - delta);
        add_scaled(g, sums->parts, QUERY, query, x, part_at(g, KEY, key), d_score * scale);
        add_scaled(g, sums->parts, KEY, key, x, part_at(g, QUERY, query), d_score * scale);
        add_scaled(g, sums->parts, VALUE, key, d_y, at, p);
        if (!sums->table) continue;
        sums->table[attention_bias_row(g->plane.window, query, key) * g->plane.heads + g->head] += d_score;
    }
}

static void store_parts(const struct head_group *g, const double *parts)
{
    const struct attention_plane *p = &g->plane;
    if (!g->call->d_x[0].data) return;
    for (enum part part = QUERY; part <= VALUE; part++)
        for (int64_t token = 0; token < p->tokens; token++)
            for (int64_t c = 0; c < p->size; c++)
                tensor_set(&g->call->d_x[0], part_at(g, part, token) + c,
                           parts[(part * p->tokens + token) * p->size + c]);
}

static enum status attention_backward(const struct call *call)
{
    struct head_group g = {.call = call, .plane = attention_plane(call)};
    bool biased = call->param_count > 0;
    size_t count = (size_t)(3 * g.plane.tokens * g.plane.size);
    size_t rows = biased ? (size_t)shape_count(call->params[0].shape) : 0;
    double *scores = memory_new((size_t)g.plane.tokens, sizeof *scores);
    struct gradient_sums sums = {memory_new(count, sizeof(double)),
                                 biased ? memory_new(rows, sizeof(double)) : NULL};
    for (size_t i = 0; i < rows; i++) sums.table[i] = 0;
    for (g.group = 0; g.group < g.plane.groups; g.group++)
        for (g.head = 0; g.head < g.plane.heads; g.head++) {
            memset(sums.parts, 0, count * sizeof(double));
            for (int64_t query = 0; query < g.plane.tokens; query++)
                backward_query(&g, query, scores, &sums);
            store_parts(&g, sums.parts);
        }
    for (size_t i = 0; i < rows && call->d_params[0].data; i++)
        tensor_set(&call->d_params[0], (int64_t)i, sums.table[i]);
    free(scores);
    free(sums.parts);
    free(sums.table);
    return OK;
}

static const struct field fields[] = {
    {.name = "heads", .type = FIELD_INT, .offset = offsetof(struct attention, heads), .min = 1, .max = 4096,
     .help = "Heads."},
    {.name = "window", .type = FIELD_INT, .offset = offsetof(struct attention, window), .initial = "0",
     .min = 0, .max = 1024,
     .help = "Tokens attend to those of their window of so many rows and columns; 0: to all of the image."},
    {.name = "shift", .type = FIELD_INT, .offset = offsetof(struct attention, shift), .initial = "0",
     .min = 0, .max = 1023, .help = "Rows and columns by which windows are shifted."},
    {0},
};

static const struct op_code reference = {
    .forward = attention_forward,
    .backward = attention_backward,
    .recompute = attention_forward,
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"heads=2", 1, {SHAPE(2, 17, 1, 192)}},
    {"heads=3", 1, {SHAPE(1, 3, 5, 45)}},
    {"heads=1", 1, {SHAPE(2, 1, 1, 96)}},
    {"heads=3", 1, {SHAPE(1, 50, 1, 576)}},
    {"heads=1 window=2", 1, {SHAPE(2, 4, 6, 12)}},
    {"heads=2 window=3 shift=1", 1, {SHAPE(1, 6, 9, 30)}},
    {"heads=3 window=7 shift=3", 1, {SHAPE(1, 14, 7, 288)}},
    {"heads=1 window=7 shift=3", 2, {SHAPE(1, 14, 14, 96), SHAPE(1, 12, 9, 32)}},
    {"heads=2 window=7 shift=3", 1, {SHAPE(2, 7, 7, 192)}},
    {"heads=1 window=8", 1, {SHAPE(1, 8, 8, 24)}},
    {"heads=1", 1, {SHAPE(1, 107, 1, 24)}},
    {0},
};

/* Sizes of vision transformers, and more tokens than fit into a GPU's shared memory. */
static const struct op_example large[] = {
    {"heads=3", 1, {SHAPE(2, 197, 1, 576)}},
    {"heads=12", 1, {SHAPE(1, 50, 1, 2304)}},
    {"heads=2", 1, {SHAPE(1, 257, 1, 480)}},
    {"heads=1", 1, {SHAPE(2, 25, 25, 192)}},
    {"heads=1", 1, {SHAPE(1, 17, 17, 384)}},
    {"heads=6 window=7 shift=3", 1, {SHAPE(2, 28, 28, 576)}},
    {0},
};

bool attention_cuda_supports(const struct call *call)
{
    return call_is_plain(call) && attention_plane(call).size <= ATTENTION_SIZE_MAX;
}

const struct op attention_op = {
    .name = "attention",
    .help = "Softmax attention on queries, keys and values side by side, of all tokens or in windows.",
    .settings_size = sizeof(struct attention),
    .fields = fields,
    .min_inputs = 1,
    .max_inputs = 2,
    .shape = attention_shape,
    .params = attention_params,
    .saved = attention_saved,
    .reads = attention_reads,
    .macs = attention_macs,
    .no_gradient = attention_no_gradient,
    .rounds_factors = true,
    .reference = &reference,
    .cpu = &attention_cpu,
    .cuda = ON_CUDA(attention_cuda),
    .supports_cuda = attention_cuda_supports,
    .examples = examples,
    .large = large,
};
