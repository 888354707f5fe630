/* conv_shifted_cpu.c: weight gradients in bf16, as a matrix product over pixels for each tap (element of the
 * kernel). The pixels of all images are one line, in which zeros separate rows and images, so that each tap
 * reads the input at one distance from the output, wherever that is:
 *
 *   d_w[tap][c][k] = sum over positions p of x[p + distance(tap)][c] * d_y[p][k]
 *
 * Strided, x is cut into one plane for each residue of its coordinates by the strides; a tap reads one of
 * them. x is transposed, so that taps are but other offsets in a row of a channel; d_y is arranged in
 * pairs of positions (pair_product.h). Positions are added up in order, in parts that depend on the shape
 * alone. */
#include "kernels/conv/conv.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/openmp.h"
#include "kernels/support/onednn.h"
#include "kernels/support/pair_product.h"
#include "kernels/support/pixels_cpu.h"

#define RUN 512                      /* positions of x that lie together, and what taps read around them */
#define NEAR 256                     /* those that are multiplied at a time: a divisor of RUN */
#define PART_ELEMENTS (1 << 20)      /* of x and d_y that are arranged at a time, about */
#define PART_RUNS_MIN 4
#define PART_RUNS_MAX 8
#define SQUARE (PAIR_BLOCK * PAIR_BLOCK)

/* An axis of the line: taps reach `before` and `after` the position, of planes of at most `extent`. */
struct axis {
    int64_t in, out, kernel, stride, pad, dilation;
    int64_t before, after, extent, pitch;
};

struct shifted {
    const struct pair_code *code;
    struct axis h, w;
    int64_t images, channels, filters;
    int64_t count;                   /* positions */
    int64_t before, row;             /* elements of a channel's row ahead of a run's first, and in all */
    int64_t part;                    /* positions */
};

static int64_t modulo(int64_t a, int64_t b)
{
    return ((a % b) + b) % b;
}

/* The residue of what a tap reads, and its distance. */
static int64_t residue(const struct axis *a, int64_t tap)
{
    return modulo(tap * a->dilation - a->pad, a->stride);
}

static int64_t distance(const struct axis *a, int64_t tap)
{
    return (tap * a->dilation - a->pad - residue(a, tap)) / a->stride;
}

static int64_t plane_extent(const struct axis *a, int64_t plane)
{
    return min_count(pieces(a->in - plane, a->stride), a->out + a->after);
}

/* A pitch such that what is read before a row, or after it, is zeros or the row's own. */
static struct axis axis_make(const struct conv_geometry *g, int i, int64_t in, int64_t out)
{
    struct axis a = {.in = in, .out = out, .kernel = g->kernel[i], .stride = g->stride[i], .pad = g->pad[i],
                     .dilation = g->dilation[i]};
    for (int64_t tap = 0; tap < a.kernel; tap++) {
        int64_t d = distance(&a, tap);
        if (-d > a.before) a.before = -d;
        if (d > a.after) a.after = d;
    }
    a.extent = plane_extent(&a, 0);
    int64_t own = a.out + a.after, next = (a.extent > a.out ? a.extent : a.out) + a.before;
    a.pitch = own > next ? own : next;
    return a;
}

static int64_t taps(const struct shifted *s)
{
    return s->h.kernel * s->w.kernel;
}

static int64_t planes(const struct shifted *s)
{
    return s->h.stride * s->w.stride;
}

static int64_t plane_of(const struct shifted *s, int64_t tap)
{
    return residue(&s->h, tap / s->w.kernel) * s->w.stride + residue(&s->w, tap % s->w.kernel);
}

static bool is_read(const struct shifted *s, int64_t plane)
{
    bool read = false;
    for (int64_t tap = 0; tap < taps(s); tap++) read = read || plane_of(s, tap) == plane;
    return read;
}

static int64_t padded(int64_t channels)
{
    return pieces(channels, PAIR_BLOCK) * PAIR_BLOCK;
}

/* The workspace: d_w as blocks of channels, blocks of filters, taps, PAIR_BLOCK channels, PAIR_BLOCK
 * filters; then x as planes, runs, channels, positions; d_y as halves of blocks of filters, pairs of
 * positions, filters, 2. */

static int64_t d_w_elements(const struct shifted *s)
{
    return padded(s->channels) * padded(s->filters) * taps(s);
}

static int64_t run_elements(const struct shifted *s)
{
    return padded(s->channels) * s->row;
}

static int64_t plane_elements(const struct shifted *s)
{
    return s->part / RUN * run_elements(s);
}

struct places {
    float *d_w;
    uint16_t *x, *d_y;
};

static struct places places_of(const struct shifted *s, void *workspace)
{
    struct places p = {.d_w = workspace};
    p.x = (uint16_t *)(p.d_w + d_w_elements(s));
    p.d_y = p.x + planes(s) * plane_elements(s);
    return p;
}

/* Images as they lie in the line: `stride` apart, from (h, w) on. */
struct images {
    const struct tensor *tensor;
    int64_t stride_h, stride_w, h, w, extent_h, extent_w;
};

/* Line number `row` of the whole line: the pixel at its beginning, even if it is outside; whether others
 * are inside. */
static int64_t row_at(const struct shifted *s, const struct images *from, int64_t row, bool *inside)
{
    const struct shape *shape = &from->tensor->shape;
    int64_t h = modulo(row, s->h.pitch), image = (row - h) / s->h.pitch;
    *inside = image >= 0 && image < s->images && h < from->extent_h;
    return (image * shape->h + h * from->stride_h + from->h) * shape->w + from->w;
}

/* The pixels at PAIR_DEPTH positions. */
static void lines_at(const struct shifted *s, const struct images *from, int64_t first,
                     const uint16_t *lines[PAIR_DEPTH])
{
    int64_t w = modulo(first, s->w.pitch), row = (first - w) / s->w.pitch, channels = from->tensor->shape.c;
    for (int64_t i = 0, end; i < PAIR_DEPTH; i = end, w = 0, row++) {
        bool inside;
        int64_t pixel = row_at(s, from, row, &inside) + w * from->stride_w;
        const uint16_t *line = (const uint16_t *)from->tensor->data + pixel * channels;
        end = min_count(i + s->w.pitch - w, PAIR_DEPTH);
        for (int64_t j = i; j < end; j++, line += from->stride_w * channels)
            lines[j] = inside && w + j - i < from->extent_w ? line : NULL;
    }
}

static void x_arrange(const struct shifted *s, const struct images *from, int64_t first, uint16_t *to)
{
    const uint16_t *lines[PAIR_DEPTH];
    lines_at(s, from, first, lines);
    for (int64_t c = 0; c < padded(s->channels); c += PAIR_HALF) {
        const struct pair_lines part = {lines, c, s->channels - c};
        s->code->transpose(&part, to + c * s->row, s->row);
    }
}

static void d_y_arrange(const struct shifted *s, const struct images *from, int64_t first, uint16_t *to)
{
    const uint16_t *lines[PAIR_DEPTH];
    lines_at(s, from, first, lines);
    for (int64_t k = 0; k < padded(s->filters); k += PAIR_HALF) {
        const struct pair_lines part = {lines, k, s->filters - k};
        s->code->interleave(&part, to + k * s->part);
    }
}

static struct images plane_images(const struct shifted *s, const struct tensor *x, int64_t plane)
{
    int64_t h = plane / s->w.stride, w = plane % s->w.stride;
    return (struct images){x, s->h.stride, s->w.stride, h, w, plane_extent(&s->h, h), plane_extent(&s->w, w)};
}

/* `count` positions from `first` on: all PAIR_DEPTH blocks of x's runs, and of d_y. */
static void part_arrange(const struct shifted *s, const struct call *call, int64_t first, int64_t count,
                         const struct places *to)
{
    int64_t across = s->row / PAIR_DEPTH, blocks = pieces(count, RUN) * across;
    for (int64_t plane = 0; plane < planes(s); plane++) {
        if (!is_read(s, plane)) continue;
        struct images images = plane_images(s, &call->x[0], plane);
        uint16_t *x = to->x + plane * plane_elements(s);
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < blocks; i++) {
            int64_t run = i / across, at = i % across * PAIR_DEPTH;
            x_arrange(s, &images, first + run * RUN + at - s->before, x + run * run_elements(s) + at);
        }
    }
    struct images images = {&call->d_y, 1, 1, 0, 0, s->h.out, s->w.out};
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; i += PAIR_DEPTH)
        d_y_arrange(s, &images, first + i, to->d_y + i * PAIR_HALF);
}

/* Adds the products of `count` positions to d_w[c block][k block][tap], blocks counted by `square`; `add`
 * only if there were some before. */
static void square_multiply(const struct shifted *s, const struct places *at, int64_t square,
                            int64_t first, int64_t count, bool add)
{
    int64_t tap = square % taps(s), block = square / taps(s), filter_blocks = padded(s->filters) / PAIR_BLOCK;
    int64_t reach = distance(&s->h, tap / s->w.kernel) * s->w.pitch + distance(&s->w, tap % s->w.kernel);
    const uint16_t *x = at->x + plane_of(s, tap) * plane_elements(s);
    s->code->multiply(&(struct pair_product){
        .a = x + first / RUN * run_elements(s) + block / filter_blocks * PAIR_BLOCK * s->row + s->before +
             reach + first % RUN,
        .row = s->row,
        .b = at->d_y + block % filter_blocks * PAIR_BLOCK * s->part + first * PAIR_HALF,
        .half = PAIR_HALF * s->part,
        .y = at->d_w + square * SQUARE,
        .depth = count,
        .add = add,
    });
}

/* All taps of a block of channels and filters read the same positions, which stay in the first-level
 * cache. */
static void part_multiply(const struct shifted *s, const struct places *at, int64_t count, bool add)
{
    int64_t blocks = d_w_elements(s) / SQUARE / taps(s);
    int64_t groups = blocks < 2 * omp_get_num_threads() ? s->h.kernel : 1, each = taps(s) / groups;
    s->code->begin();
#pragma omp for schedule(static)
    for (int64_t i = 0; i < blocks * groups; i++)
        for (int64_t first = 0; first < count; first += NEAR)
            for (int64_t square = i * each; square < (i + 1) * each; square++)
                square_multiply(s, at, square, first, min_count(NEAR, count - first), add || first > 0);
    s->code->end();
}

/* Filters from k on, channels from c on: one block. */
static void d_w_store(const struct shifted *s, const struct places *at, int64_t c, int64_t k, float *d_w)
{
    int64_t count = taps(s), block = c / PAIR_BLOCK * (padded(s->filters) / PAIR_BLOCK) + k / PAIR_BLOCK;
    int64_t channels = min_count(PAIR_BLOCK, s->channels - c);
    int64_t filters = min_count(PAIR_BLOCK, s->filters - k);
    for (int64_t filter = 0; filter < filters; filter++) {
        float *to = d_w + ((k + filter) * s->channels + c) * count;
        const float *from = at->d_w + block * count * SQUARE + filter;
        for (int64_t i = 0; i < channels; i++)
            for (int64_t tap = 0; tap < count; tap++) *to++ = from[tap * SQUARE + i * PAIR_BLOCK];
    }
}

static void weights_run(const struct shifted *s, const struct call *call)
{
    struct places at = places_of(s, call->workspace);
#pragma omp parallel
    {
        for (int64_t first = 0; first < s->count; first += s->part) {
            int64_t count = pieces(min_count(s->part, s->count - first), PAIR_DEPTH) * PAIR_DEPTH;
            part_arrange(s, call, first, count, &at);
            part_multiply(s, &at, count, first > 0);
        }
#pragma omp for collapse(2) schedule(static)
        for (int64_t c = 0; c < s->channels; c += PAIR_BLOCK)
            for (int64_t k = 0; k < s->filters; k += PAIR_BLOCK)
                d_w_store(s, &at, c, k, call->d_params[0].data);
    }
}

static size_t workspace_of(const struct shifted *s, const struct call *call)
{
    size_t pairs = (size_t)(planes(s) * plane_elements(s) + padded(s->filters) * s->part) * sizeof(uint16_t);
    size_t products = onednn_align((size_t)d_w_elements(s) * sizeof(float) + pairs);
    size_t bias = call->param_count > 1 ? pixels_bias_workspace(call) : 0;
    return products > bias ? products : bias;
}

static const char *shifted_lacks(void)
{
    return pair_code_here() ? NULL : "AMX";
}

static bool shifted_supports(const struct call *call)
{
    return call->phase == PHASE_BACKWARD_PARAMS && call->x[0].dtype == BF16 && pair_code_here() &&
           conv_geometry(call->settings, call->x[0].shape.c).groups == 1;
}

/* Fewer channels or filters fill blocks badly. */
#define WORTH_CHANNELS 32

static bool shifted_make(const struct call *call, struct kernel_plan *plan)
{
    const struct shape *x = &call->x[0].shape;
    const struct shape *y = call->y.shape.rank > 0 ? &call->y.shape : &call->d_y.shape;
    struct conv_geometry g = conv_geometry(call->settings, x->c);
    if (!call->variant && (x->c < WORTH_CHANNELS || y->c < WORTH_CHANNELS)) return false;
    struct shifted *s = memory_new(1, sizeof *s);
    *s = (struct shifted){
        .code = pair_code_here(), .images = x->n, .channels = x->c, .filters = y->c,
    };
    s->h = axis_make(&g, 0, x->h, y->h);
    s->w = axis_make(&g, 1, x->w, y->w);
    s->count = x->n * s->h.pitch * s->w.pitch;
    s->before = s->h.before * s->w.pitch + s->w.before;
    int64_t row = s->before + RUN + s->h.after * s->w.pitch + s->w.after;
    s->row = pieces(row, PAIR_DEPTH) * PAIR_DEPTH;
    int64_t runs = PART_ELEMENTS / RUN / (x->c + y->c);
    runs = runs < PART_RUNS_MIN ? PART_RUNS_MIN : min_count(runs, PART_RUNS_MAX);
    s->part = min_count(runs, pieces(s->count, RUN)) * RUN;
    plan->state = s;
    plan->workspace = workspace_of(s, call);
    return true;
}

static enum status shifted_run(const struct call *call, const struct kernel_plan *plan)
{
    if (call->param_count > 1) pixels_bias_run(call);
    weights_run(plan->state, call);
    return OK;
}

const struct algorithm conv_shifted = {
    .name = "shifted",
    .supports = shifted_supports,
    .make = shifted_make,
    .run = shifted_run,
    .lacks = shifted_lacks,
};
