/* conv_winograd_cpu.c: 3x3 convolutions of stride 1. Images and kernels are transformed by tiles
 * (winograd.h), in fp32 whatever the storage type. At each of the 36 points, one matrix product sums over
 * channels: (tiles x channels) times (channels x filters); for d_g it sums over tiles. d_x is the same
 * convolution of d_y with kernels rotated by 180 degrees. No decision depends on the number of images or
 * threads, so an image has the same result in any batch. */
#include "kernels/conv/conv.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/openmp.h"
#include "kernels/cpu.h"
#include "kernels/kept_weights.h"
#include "kernels/support/onednn.h"
#include "kernels/support/panel_product.h"
#include "kernels/conv/winograd.h"

#define BLOCK_TILES 64         /* the maximum that a thread processes at a time */
#define CACHE_LINE 64
#define SKEW 16                /* elements between points, so that they map to different cache sets */

/* Input and output images, of forward or, swapped, of backward_data. */
struct side {
    int64_t h, w, c;
};

struct winograd {
    panel_multiply *multiply;
    int64_t images, pad[2];
    struct side x, y;
    enum dtype dtype;
    int threads;
    struct kept_weights kept;      /* transformed */
};

/* One convolution: that of forward, or of backward_data. */
struct tiling {
    struct tensor from, to;
    struct side in, out;
    int64_t pad[2], across, per_image, count;
    bool turned;               /* kernels are rotated, their channels and filters swapped */
};

static struct tiling tiling_of(const struct winograd *w, const struct call *call)
{
    bool turned = call->phase == PHASE_BACKWARD_DATA;
    struct tiling t = {
        .from = turned ? call->d_y : call->x[0],
        .to = turned ? call->d_x[0] : call->y,
        .in = turned ? w->y : w->x,
        .out = turned ? w->x : w->y,
        .turned = turned,
    };
    for (int i = 0; i < 2; i++) t.pad[i] = turned ? 2 - w->pad[i] : w->pad[i];
    t.across = pieces(t.out.w, TILE_OUT);
    t.per_image = pieces(t.out.h, TILE_OUT) * t.across;
    t.count = w->images * t.per_image;
    return t;
}

/* A square of pixels, given by the upper left one; any of them may be outside of the image. */
struct square {
    int64_t image, h, w;
};

static struct square square_of(const struct tiling *t, int64_t tile)
{
    int64_t within = tile % t->per_image;
    return (struct square){tile / t->per_image, within / t->across * TILE_OUT, within % t->across * TILE_OUT};
}

static const float zeros[PANEL];

/* The pixels' channels as fp32: in place, or in `buffer`, which has room for all; zeros outside the image. */
static void square_load(const struct tensor *images, const struct side *side, const struct square *at,
                        int edge, float *buffer, const float **pixels)
{
    int64_t left = at->w < 0 ? -at->w : 0, right = min_count(edge, side->w - at->w);
    for (int row = 0; row < edge; row++) {
        int64_t h = at->h + row;
        bool inside = h >= 0 && h < side->h && right > left;
        const float *run = NULL;
        if (inside) {
            int64_t first = ((at->image * side->h + h) * side->w + at->w + left) * side->c;
            int64_t count = (right - left) * side->c;
            run = block_load(images, first, count, buffer + row * edge * side->c);
        }
        for (int64_t column = 0; column < edge; column++)
            pixels[row * edge + column] =
                inside && column >= left && column < right ? run + (column - left) * side->c : zeros;
    }
}

/* PANEL channels of pixels, from `channel` on. */
static void channels_at(const float *const *pixels, int count, int64_t channel, const float **lines)
{
    for (int i = 0; i < count; i++) lines[i] = pixels[i] == zeros ? zeros : pixels[i] + channel;
}

/* Elements of the workspace. */

static int64_t square_elements(int64_t channels)
{
    return POINTS * channels;
}

static int64_t points_stride(int64_t rows, int64_t columns)
{
    return rows * columns + SKEW;
}

static int64_t weight_elements(const struct winograd *w)
{
    return POINTS * w->x.c * w->y.c;
}

/* Rows of a block: a multiple of PANEL_ROWS. */
static int64_t block_tiles(const struct winograd *w, const struct tiling *t)
{
    int64_t share = pieces(pieces(t->count, w->threads), PANEL_ROWS) * PANEL_ROWS;
    return min_count(share, BLOCK_TILES);
}

static int64_t block_elements(const struct tiling *t, int64_t tiles)
{
    return square_elements(t->in.c) + POINTS * (points_stride(tiles, t->in.c) + points_stride(tiles, PANEL));
}

/* U: [filters / PANEL][point][channel][PANEL], of weights k, c, r, s; `turned` has both swapped. */
struct weights {
    const struct tensor *stored;
    float *u;
    int64_t filters, channels;    /* as stored */
    bool turned;
};

/* PANEL by PANEL kernels. */
static void weights_transform_square(const struct weights *w, int64_t filter, int64_t channel)
{
    float kernels[PANEL][PANEL * TAPS], lines[TAPS][PANEL];
    const float *in[TAPS];
    for (int tap = 0; tap < TAPS; tap++) in[tap] = lines[tap];
    for (int k = 0; k < PANEL; k++)
        dtype_convert(F32, kernels[k], w->stored->dtype,
                      block_address(w->stored, ((filter + k) * w->channels + channel) * TAPS), PANEL * TAPS);
    int64_t depth = w->turned ? w->filters : w->channels;
    int64_t panel = (w->turned ? channel : filter) / PANEL, first = w->turned ? filter : channel;
    float *u = w->u + panel * POINTS * depth * PANEL;
    for (int d = 0; d < PANEL; d++) {
        for (int tap = 0; tap < TAPS; tap++)
            for (int j = 0; j < PANEL; j++)
                lines[tap][j] =
                    w->turned ? kernels[d][j * TAPS + TAPS - 1 - tap] : kernels[j][d * TAPS + tap];
        winograd_weight(in, u + (first + d) * PANEL, depth * PANEL);
    }
}

static void weights_transform(const struct weights *w, int threads)
{
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
    for (int64_t filter = 0; filter < w->filters; filter += PANEL)
        for (int64_t channel = 0; channel < w->channels; channel += PANEL)
            weights_transform_square(w, filter, channel);
}

/* V of one tile, row `row` of each point's matrix. */
static void tile_transform(const struct tiling *t, int64_t tile, float *buffer, float *v, int64_t stride)
{
    const float *pixels[POINTS], *lines[POINTS];
    struct square at = square_of(t, tile);
    at.h -= t->pad[0];
    at.w -= t->pad[1];
    square_load(&t->from, &t->in, &at, TILE_IN, buffer, pixels);
    for (int64_t channel = 0; channel < t->in.c; channel += PANEL) {
        channels_at(pixels, POINTS, channel, lines);
        winograd_input(lines, v + channel, stride);
    }
}

/* Share number `share` of `shares` of the pixels of tiles first .. end - 1. */
struct fetch {
    int64_t first, end, share, shares;
};

/* Fetches them into the cache while other tiles are multiplied. */
static void tiles_prefetch(const struct tiling *t, const struct tensor *images, const struct side *side,
                           const struct fetch *f)
{
    if (f->first >= f->end) return;
    struct square a = square_of(t, f->first), z = square_of(t, f->end - 1);
    int64_t bytes = side->w * side->c * (int64_t)dtype_bytes(images->dtype);
    int64_t from = (a.image * side->h + a.h) * bytes;
    int64_t to = (z.image * side->h + min_count(z.h + TILE_OUT, side->h)) * bytes;
    for (int64_t at = from + f->share * CACHE_LINE; at < to; at += f->shares * CACHE_LINE)
        __builtin_prefetch((const char *)images->data + at, 0, 2);
}

/* Outputs of PANEL channels. */
static void tile_finish(const struct tiling *t, int64_t tile, const float *m, int64_t stride,
                        const float *bias, int64_t channel)
{
    float y[TILE_OUT * TILE_OUT][PANEL], stored[TILE_OUT * TILE_OUT][PANEL];
    size_t bytes = PANEL * dtype_bytes(t->to.dtype);
    const float *lines[POINTS];
    struct square at = square_of(t, tile);
    for (int i = 0; i < POINTS; i++) lines[i] = m + i * stride;
    winograd_output(lines, y[0], PANEL);
    for (int i = 0; bias && i < TILE_OUT * TILE_OUT; i++)
        for (int j = 0; j < PANEL; j++) y[i][j] += bias[channel + j];
    dtype_convert(t->to.dtype, stored, F32, y, TILE_OUT * TILE_OUT * PANEL);
    for (int64_t h = 0; h < min_count(TILE_OUT, t->out.h - at.h); h++)
        for (int64_t w = 0; w < min_count(TILE_OUT, t->out.w - at.w); w++) {
            int64_t pixel = (at.image * t->out.h + at.h + h) * t->out.w + at.w + w;
            memcpy(block_address(&t->to, pixel * t->out.c + channel),
                   (char *)stored + (size_t)(h * TILE_OUT + w) * bytes, bytes);
        }
}

/* The factors of all tiles. */
struct factors {
    const float *u, *bias;               /* no bias: NULL */
};

/* Tiles first .. first + count - 1, in the thread's own memory. */
static void block_run(const struct winograd *w, const struct tiling *t, const struct factors *by,
                      int64_t first, int64_t count, float *memory)
{
    const float *u = by->u;
    int64_t rows = pieces(count, PANEL_ROWS) * PANEL_ROWS;
    int64_t stride = points_stride(rows, t->in.c), m_stride = points_stride(rows, PANEL);
    float *v = memory + square_elements(t->in.c), *m = v + POINTS * stride;
    for (int64_t i = 0; i < count; i++) tile_transform(t, first + i, memory, v + i * t->in.c, stride);
    for (int64_t channel = 0; channel < t->out.c; channel += PANEL) {
        for (int point = 0; point < POINTS; point++, u += t->in.c * PANEL) {
            const struct fetch next = {first + count, min_count(first + 2 * count, t->count),
                                       channel / PANEL * POINTS + point, t->out.c / PANEL * POINTS};
            tiles_prefetch(t, &t->from, &t->in, &next);
            w->multiply(&(struct panel_product){
                .a = v + point * stride, .row = t->in.c, .step = 1, .b = u, .b_row = PANEL,
                .y = m + point * m_stride, .y_row = PANEL, .rows = rows, .columns = PANEL, .depth = t->in.c});
        }
        for (int64_t i = 0; i < count; i++)
            tile_finish(t, first + i, m + i * PANEL, m_stride, by->bias, channel);
    }
}

/* The bias as fp32, at the workspace's end. */
static const float *bias_load(const struct call *call, int64_t filters, float *memory)
{
    bool biased = call->phase == PHASE_FORWARD && call->param_count > 1;
    return biased ? block_load(&call->params[1], 0, filters, memory) : NULL;
}

static void images_run(struct winograd *w, const struct call *call)
{
    bool fresh;
    struct tiling t = tiling_of(w, call);
    int64_t tiles = block_tiles(w, &t), elements = block_elements(&t, tiles), count = weight_elements(w);
    void *kept = kept_weights_of(&w->kept, call->params[0].data, (size_t)count * sizeof(float), &fresh);
    float *u = kept ? kept : call->workspace, *blocks = (float *)call->workspace + count;
    const struct factors by = {u, bias_load(call, w->y.c, blocks + w->threads * elements)};
    struct weights weights = {&call->params[0], u, w->y.c, w->x.c, t.turned};
    if (fresh) weights_transform(&weights, w->threads);
#pragma omp parallel for schedule(static) num_threads(w->threads)
    for (int64_t first = 0; first < t.count; first += tiles)
        block_run(w, &t, &by, first, min_count(tiles, t.count - first),
                  blocks + omp_get_thread_num() * elements);
}

/* The gradient of the weights. Tiles are cut into parts and filters into slices, by the shape alone; one
 * thread adds up a part's products for a slice of filters, in memory that no other thread touches:
 *
 *   d_u   [part][filters / PANEL][point][channel][PANEL]
 *   v     [point][tile][channel]                          of `tiles` tiles, the thread's
 *   d_v   [slice / PANEL][point][tile][PANEL]             of their d_y
 *
 * v is recomputed for every slice. Then the parts are added up in order. */
struct gradient {
    const struct winograd *w;
    const struct call *call;
    struct tiling t;
    int64_t parts, part_tiles;
    int64_t slice, tiles;
    int64_t v_stride, d_v_stride;
};

#define SLICE 128                      /* filters: enough to be worth computing v */
#define PART_TILES 256                 /* at least */
#define PARTS_ELEMENTS (4 << 20)       /* of all parts' d_u, about */
#define DEEP 256                       /* from so many channels on, more tiles at a time are worthwhile */

static struct gradient gradient_open(const struct winograd *w, const struct call *call)
{
    struct call forward = *call;
    forward.phase = PHASE_FORWARD;
    struct gradient g = {.w = w, .call = call, .t = tiling_of(w, &forward), .parts = 1};
    while (2 * g.parts * weight_elements(w) <= PARTS_ELEMENTS && 2 * g.parts * PART_TILES <= g.t.count)
        g.parts *= 2;
    g.part_tiles = pieces(g.t.count, g.parts);
    g.slice = w->y.c % SLICE == 0 ? SLICE : w->y.c;
    g.tiles = w->x.c < DEEP ? 32 : 64;
    g.v_stride = points_stride(g.tiles, w->x.c);
    g.d_v_stride = points_stride(g.tiles, PANEL);
    return g;
}

static int64_t gradient_thread_elements(const struct gradient *g)
{
    int64_t wide = g->w->x.c > g->w->y.c ? g->w->x.c : g->w->y.c;
    return square_elements(wide) + POINTS * (g->v_stride + g->slice / PANEL * g->d_v_stride);
}

static int64_t gradient_elements(const struct gradient *g)
{
    return g->parts * weight_elements(g->w) + g->w->threads * gradient_thread_elements(g);
}

static void gradient_tile(const struct gradient *g, int64_t tile, int64_t filter, float *buffer, float *d_v)
{
    const float *pixels[TILE_OUT * TILE_OUT], *lines[TILE_OUT * TILE_OUT];
    struct square at = square_of(&g->t, tile);
    square_load(&g->call->d_y, &g->w->y, &at, TILE_OUT, buffer, pixels);
    for (int64_t i = 0; i < g->slice; i += PANEL) {
        channels_at(pixels, TILE_OUT * TILE_OUT, filter + i, lines);
        winograd_output_gradient(lines, d_v + i / PANEL * POINTS * g->d_v_stride, g->d_v_stride);
    }
}

static void gradient_unit(const struct gradient *g, int64_t part, int64_t filter, float *memory)
{
    int64_t channels = g->w->x.c, end = min_count((part + 1) * g->part_tiles, g->t.count);
    float *d_u = (float *)g->call->workspace + part * weight_elements(g->w) + filter * POINTS * channels;
    float *d_v = memory, *v = d_v + g->slice / PANEL * POINTS * g->d_v_stride;
    float *buffer = v + POINTS * g->v_stride;
    for (int64_t tile = part * g->part_tiles, count; tile < end; tile += count) {
        count = min_count(g->tiles, end - tile);
        for (int64_t i = 0; i < count; i++) {
            tile_transform(&g->t, tile + i, buffer, v + i * channels, g->v_stride);
            gradient_tile(g, tile + i, filter, buffer, d_v + i * PANEL);
        }
        int64_t next = tile + count, shares = g->slice / PANEL * POINTS;
        for (int64_t i = 0; i < shares; i++) {
            const struct fetch fetch = {next, min_count(next + g->tiles, end), i, shares};
            tiles_prefetch(&g->t, &g->t.from, &g->w->x, &fetch);
            tiles_prefetch(&g->t, &g->call->d_y, &g->w->y, &fetch);
            g->w->multiply(&(struct panel_product){
                .a = v + i % POINTS * g->v_stride, .row = 1, .step = channels, .b = d_v + i * g->d_v_stride,
                .b_row = PANEL, .y = d_u + i * channels * PANEL, .y_row = PANEL, .rows = channels,
                .columns = PANEL, .depth = count, .add = tile > part * g->part_tiles});
        }
    }
}

/* The kernels of one channel and PANEL filters. */
static void gradient_finish(const struct gradient *g, int64_t panel, int64_t channel)
{
    int64_t channels = g->w->x.c;
    float sums[POINTS][PANEL], taps[TAPS][PANEL], *d_w = g->call->d_params[0].data;
    const float *lines[POINTS];
    for (int point = 0; point < POINTS; point++) {
        int64_t at = ((panel * POINTS + point) * channels + channel) * PANEL;
        const float *d_u = (float *)g->call->workspace + at;
        memcpy(sums[point], d_u, sizeof sums[point]);
        for (int64_t part = 1; part < g->parts; part++)
            for (int i = 0; i < PANEL; i++) sums[point][i] += d_u[part * weight_elements(g->w) + i];
        lines[point] = sums[point];
    }
    winograd_weight_gradient(lines, taps[0], PANEL);
    for (int k = 0; k < PANEL; k++)
        for (int tap = 0; tap < TAPS; tap++)
            d_w[((panel * PANEL + k) * channels + channel) * TAPS + tap] = taps[tap][k];
}

static void weights_run(const struct winograd *w, const struct call *call)
{
    struct gradient g = gradient_open(w, call);
    float *memory = (float *)call->workspace + g.parts * weight_elements(w);
    int64_t own = gradient_thread_elements(&g);
#pragma omp parallel num_threads(w->threads)
    {
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t part = 0; part < g.parts; part++)
            for (int64_t filter = 0; filter < w->y.c; filter += g.slice)
                gradient_unit(&g, part, filter, memory + omp_get_thread_num() * own);
#pragma omp for collapse(2) schedule(static)
        for (int64_t panel = 0; panel < w->y.c / PANEL; panel++)
            for (int64_t channel = 0; channel < w->x.c; channel++) gradient_finish(&g, panel, channel);
    }
}

/* Sums over pixels of PANEL filters: of BLOCK pixels in fp32, of those in fp64. */
static void bias_gradient(const struct winograd *w, const struct call *call, int64_t channel)
{
    double sums[PANEL] = {0};
    int64_t pixels = w->images * w->y.h * w->y.w;
    for (int64_t first = 0; first < pixels; first += BLOCK) {
        float part[PANEL] = {0}, buffer[PANEL];
        for (int64_t i = first; i < min_count(first + BLOCK, pixels); i++) {
            const float *line = block_load(&call->d_y, i * w->y.c + channel, PANEL, buffer);
            for (int j = 0; j < PANEL; j++) part[j] += line[j];
        }
        for (int j = 0; j < PANEL; j++) sums[j] += part[j];
    }
    for (int j = 0; j < PANEL; j++) tensor_set(&call->d_params[1], channel + j, sums[j]);
}

/* Direct code is faster for few channels and small images, where transforms cost more than they save. So it
 * is for bf16 if products in bf16 are faster than in fp32: always with AMX; at twice the speed, if much of
 * the tiles is outside of the image or, for weights, an image has few tiles. */
#define WORTH_PRODUCTS 1e7
#define WORTH_COVER 0.9
#define WORTH_TILES 4
static bool pays(const struct winograd *w, enum phase phase)
{
    double outputs = (double)(w->y.h * w->y.w);
    int64_t tiles = pieces(w->y.h, TILE_OUT) * pieces(w->y.w, TILE_OUT);
    bool vectors = machine_vectors() != MACHINE_BASELINE;
    if (!vectors || outputs * TAPS * (double)(w->x.c * w->y.c) < WORTH_PRODUCTS) return false;
    if (w->dtype != BF16 || !onednn_has_bf16()) return true;
    if (onednn_has_amx() || outputs < WORTH_COVER * TILE_OUT * TILE_OUT * (double)tiles) return false;
    return phase != PHASE_BACKWARD_PARAMS || tiles >= WORTH_TILES;
}

static bool can(const struct conv_geometry *g, const struct winograd *w)
{
    for (int i = 0; i < 2; i++)
        if (g->kernel[i] != 3 || g->stride[i] != 1 || g->dilation[i] != 1 || g->pad[i] > 2) return false;
    bool panels = w->x.c % PANEL == 0 && w->y.c % PANEL == 0;
    return g->groups == 1 && panels && dtype_is_float(w->dtype);
}

static size_t workspace_of(const struct winograd *w, const struct call *call)
{
    struct tiling t = tiling_of(w, call);
    struct gradient g = gradient_open(w, call);
    int64_t images = weight_elements(w) + w->threads * block_elements(&t, block_tiles(w, &t)) + w->y.c;
    int64_t elements = call->phase == PHASE_BACKWARD_PARAMS ? gradient_elements(&g) : images;
    return (size_t)elements * sizeof(float);
}

static bool winograd_make(const struct call *call, struct kernel_plan *plan)
{
    const struct shape *x = &call->x[0].shape;
    const struct shape *y = call->y.shape.rank > 0 ? &call->y.shape : &call->d_y.shape;
    struct conv_geometry g = conv_geometry(call->settings, x->c);
    struct winograd w = {
        .multiply = panel_multiply_here(), .images = x->n, .pad = {g.pad[0], g.pad[1]},
        .x = {x->h, x->w, x->c}, .y = {y->h, y->w, y->c}, .dtype = call->x[0].dtype,
        .threads = omp_get_max_threads(),
    };
    if (!can(&g, &w) || (!call->variant && !pays(&w, call->phase))) return false;
    plan->workspace = workspace_of(&w, call);
    plan->state = memory_new(1, sizeof w);
    *(struct winograd *)plan->state = w;
    return true;
}

static enum status winograd_run(const struct call *call, const struct kernel_plan *plan)
{
    struct winograd *w = plan->state;
    if (call->phase != PHASE_BACKWARD_PARAMS) {
        images_run(w, call);
        return OK;
    }
    weights_run(w, call);
    if (call->param_count < 2) return OK;
#pragma omp parallel for schedule(static) num_threads(w->threads)
    for (int64_t channel = 0; channel < w->y.c; channel += PANEL) bias_gradient(w, call, channel);
    return OK;
}

static void winograd_release(struct kernel_plan *plan)
{
    struct winograd *w = plan->state;
    kept_weights_free(&w->kept);
    free(w);
}

void conv_winograd_keep_weights(struct kernel_plan *plan)
{
    struct winograd *w = plan->state;
    w->kept.on = true;
}

const struct algorithm conv_winograd = {
    .name = "winograd", .make = winograd_make, .run = winograd_run, .release = winograd_release,
};
