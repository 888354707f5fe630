/* conv_depthwise_tiles.cu: the tiles in which a depthwise convolution can be computed, and a model of their
 * times. */
#include <math.h>

#include "kernels/conv/conv_depthwise.cuh"

#define GRID_MAX 65535               /* of blocks in the grid's second dimension */
#define BLOCKS_MAX 16                /* of a multiprocessor; more are not better */

static int height_of(const struct conv_call *p) { return depthwise_spreads(p) ? p->in[0] : p->out[0]; }
static int width_of(const struct conv_call *p)
{
    return depthwise_spreads(p) || p->phase == PHASE_BACKWARD ? p->in[1] : p->out[1];
}

/* The pixels of a slot. */
static int slot_pixels(const struct conv_call *p, const struct depthwise_tile *t)
{
    int k = p->kernel[0], stride = p->stride[0], pad = k / 2, columns = t->down * t->columns;
    if (depthwise_spreads(p)) return pad / 2 + (columns - 1 + pad) / 2 + 1;
    if (p->phase == PHASE_BACKWARD) return columns / stride + (k - 1) / stride + stride * columns;
    int pixels = stride * ((columns - 1) * stride + k);
    return p->phase == PHASE_BACKWARD_PARAMS ? pixels + columns : pixels;
}

static int block_threads(const struct depthwise_tile *t)
{
    return div_up(t->across * t->down, 32) * 32 + t->stagers;
}

/* The launch bounds of the tile's kernel. */
static int threads_most(const struct conv_call *p, const struct depthwise_tile *t)
{
    if (p->phase == PHASE_BACKWARD) return depthwise_backward_threads(t->columns);
    return depthwise_threads(p->kernel[0], t->channels, t->columns);
}

static int blocks_most(const struct conv_call *p, const struct depthwise_tile *t)
{
    if (p->phase == PHASE_BACKWARD) return depthwise_backward_blocks(t->columns);
    return depthwise_blocks(p->kernel[0], t->channels, t->columns);
}

/* Bytes of the ring, or of the sums that later take its place. */
static size_t block_shared(const struct conv_call *p, const struct depthwise_tile *t)
{
    size_t wide = (size_t)t->across * t->channels, sums = wide * t->down * sizeof(float);
    size_t ring = wide * t->slots * slot_pixels(p, t) * dtype_bytes(p->dtype);
    return ring > sums ? ring : sums;
}

/* Blocks that a multiprocessor holds at the same time, by the launch bounds. */
static int resident_blocks(const struct conv_call *p, const struct cuda_facts *facts,
                           const struct depthwise_tile *t)
{
    int blocks = threads_most(p, t) * blocks_most(p, t) / block_threads(t);
    int fit = (int)((facts->shared_bytes + 1024) / (block_shared(p, t) + 1280));
    if (fit < blocks) blocks = fit;
    return blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
}

static bool is_legal(const struct conv_call *p, const struct cuda_facts *facts,
                     const struct depthwise_tile *t)
{
    int most = threads_most(p, t);
    if (t->channels < 1 || t->across < 1 || t->across > most || t->down < 1 || t->down > most) return false;
    if (t->columns < 1 || t->columns > 8 || t->slots < 2 || t->slots > DEPTHWISE_SLOTS) return false;
    if (t->stagers < 32 || t->stagers > 128 || t->stagers % 32 != 0 || t->segments < 1) return false;
    return p->c % t->channels == 0 && block_threads(t) <= most &&
           block_shared(p, t) + sizeof(struct depthwise_ring) <= facts->shared_bytes;
}

static struct depthwise_layout layout_of(const struct conv_call *p, const struct depthwise_tile *t)
{
    struct depthwise_layout l = {.c = p->c, .in = {p->in[0], p->in[1]}, .out = {p->out[0], p->out[1]}};
    int size = (int)dtype_bytes(p->dtype), wide = t->across * t->channels * size;
    l.across = t->across;
    l.down = t->down;
    l.slots = t->slots;
    l.stagers = t->stagers;
    l.piece = 16;
    while (wide % l.piece != 0 || p->c * size % l.piece != 0) l.piece /= 2;
    l.tiles = div_up(width_of(p), t->down * t->columns);
    l.rows = div_up(height_of(p), t->segments);
    if (depthwise_spreads(p)) l.rows += l.rows % 2;
    l.segments = div_up(height_of(p), l.rows);
    l.walks = p->n * l.segments * l.tiles;
    return l;
}

/* All blocks run at the same time, each with as many walks as the others, or one less. */
static dim3 grid_of(const struct depthwise_layout *l, int channels, int blocks)
{
    int wide = div_up(l->c, l->across * channels), below = blocks / wide;
    int each = div_up(l->walks, below < 1 ? 1 : below);
    return dim3((unsigned)wide, (unsigned)div_up(l->walks, each));
}

static depthwise_kernel kernel_of(const struct conv_call *p, const struct depthwise_tile *t)
{
    if (p->phase == PHASE_BACKWARD_PARAMS) return depthwise_weights_kernel(p, t);
    if (p->phase == PHASE_BACKWARD) return depthwise_backward_kernel(p, t);
    return depthwise_spreads(p) ? depthwise_data_kernel(p, t) : depthwise_forward_kernel(p, t);
}

bool depthwise_plan_of(const struct conv_call *p, const struct cuda_facts *facts,
                       const struct depthwise_tile *tile, struct depthwise_plan *plan)
{
    if (!is_legal(p, facts, tile)) return false;
    int blocks = resident_blocks(p, facts, tile) * facts->multiprocessors;
    plan->kernel = kernel_of(p, tile);
    plan->layout = layout_of(p, tile);
    plan->threads = block_threads(tile);
    plan->shared = block_shared(p, tile);
    plan->grid = grid_of(&plan->layout, tile->channels, blocks);
    return plan->kernel && plan->grid.y <= GRID_MAX;
}

/* ---- The model ---- */

/* Throughput of an H200's multiprocessor per nanosecond, fitted to 15,600 timings; only the order of tiles
 * depends on it. */
#define INSTRUCTIONS 6.6             /* of warps, at most */
#define WARP_INSTRUCTIONS 0.55       /* of one warp, limited by latencies */
#define BYTES 33.0                   /* to and from memory */
#define LATENCY 1150.0               /* ns from a copy's start to its end */
#define PIECE 28.0                   /* ns between two copies of a stager */
#define STEP 50.0                    /* ns that a block's threads wait for each other in each step */
#define OVERHEAD 15.0                /* instructions of a step, besides those below */
#define OTHERS 0.15                  /* fraction of the other bounds that is not hidden */

/* Instructions of a warp for a step. */
static double step_instructions(const struct conv_call *p, const struct depthwise_tile *t)
{
    int k = p->kernel[0], stride = p->stride[0], strip = t->channels * t->columns;
    bool spreads = depthwise_spreads(p);
    if (p->phase == PHASE_BACKWARD) {
        double read = t->columns / stride + 2 + stride * t->columns;
        int each = conv_clips(p->call) ? 8 : 4;
        return 2.0 * k * k * strip / stride + read * (t->channels + 1) + each * stride * strip +
               OVERHEAD;
    }
    double pixels = spreads ? t->columns / 2.0 + 2 : stride * ((t->columns - 1) * stride + k);
    double products = spreads ? k * k * strip / 2.0 : k * k * strip, written = 4 * t->columns;
    if (p->phase == PHASE_BACKWARD_PARAMS) written = t->columns * (t->channels + 1);
    else if (conv_gives_moments(p->call)) written += 4 * strip;
    return products + pixels * (t->channels + 1) + written + OVERHEAD;
}

/* Nanoseconds: the longest of computation, memory bandwidth, memory latency with that much in flight, and the
 * stagers' work. */
static double cost(const struct conv_call *p, const struct cuda_facts *facts,
                   const struct depthwise_tile *t)
{
    struct depthwise_layout l = layout_of(p, t);
    int resident = resident_blocks(p, facts, t), stride = p->stride[0];
    dim3 grid = grid_of(&l, t->channels, resident * facts->multiprocessors);
    double blocks = div_up((int)(grid.x * grid.y), facts->multiprocessors);   /* of one of them */
    double at_once = blocks < resident ? blocks : resident, warps = (block_threads(t) - t->stagers) / 32;
    double steps = div_up(l.walks, (int)grid.y) * (l.rows / (depthwise_spreads(p) ? 2.0 : 1.0) + 2);
    double slot = (double)slot_pixels(p, t) * t->across * t->channels * dtype_bytes(p->dtype);
    double rate = at_once * warps * WARP_INSTRUCTIONS, read = blocks * steps * slot, written = 0;
    if (p->phase == PHASE_BACKWARD)
        written = read * stride * t->down * t->columns / slot_pixels(p, t);
    else if (p->phase != PHASE_BACKWARD_PARAMS)
        written = depthwise_spreads(p) ? 4 * read : read / (stride * stride);
    double bounds[] = {
        blocks * steps * warps * step_instructions(p, t) / (rate < INSTRUCTIONS ? rate : INSTRUCTIONS),
        (read + written) / BYTES,
        read / (at_once * slot * (t->slots - 1)) * LATENCY,
        read / at_once / l.piece / t->stagers * PIECE,
    };
    double most = 0, sum = 0;
    for (double bound : bounds) {
        sum += bound;
        if (bound > most) most = bound;
    }
    return most + OTHERS * sum + blocks / at_once * steps * STEP;
}

/* ---- The family ---- */

static const struct depthwise_tile strips[] = {
    {.channels = 2, .columns = 4}, {.channels = 2, .columns = 7}, {.channels = 4, .columns = 4},
    {.channels = 2, .columns = 8},
};
static const int slots[] = {3, 4, 6}, stagers[] = {64, 128}, segments[] = {1, 2, 4};
static const int cuts[] = {1, 2, 3, 4, 8};       /* of a row of strips */
#define LENGTH(array) (int)(sizeof(array) / sizeof *(array))
#define OF_STRIP 3                   /* tiles that are kept of each strip */
#define NARROWEST 16                 /* channels of a block, if there are as many */
#define SHORTEST 7                   /* rows worth a walk */

struct ranked {
    struct depthwise_tile tile;
    double cost;
};

/* Keeps the cheapest `most`, in order. */
static int rank(struct ranked list[], int count, int most, struct ranked what)
{
    int at = count < most ? count : most;
    while (at > 0 && list[at - 1].cost > what.cost) at--;
    if (at == most) return count;
    if (count < most) count++;
    for (int i = count - 1; i > at; i--) list[i] = list[i - 1];
    list[at] = what;
    return count;
}

/* The best ring and cut of rows for a block's threads that compute; false: none fits. */
static bool ring_choose(const struct conv_call *p, const struct cuda_facts *facts, struct depthwise_tile t,
                        struct ranked *best)
{
    best->cost = HUGE_VAL;
    for (int segment : segments) {
        if (segment > 1 && height_of(p) / segment < SHORTEST) continue;
        t.segments = segment;
        for (int slot : slots)
            for (int stager : stagers) {
                t.slots = slot;
                t.stagers = stager;
                if (!is_legal(p, facts, &t) || resident_blocks(p, facts, &t) == 0) continue;
                double time = cost(p, facts, &t);
                if (time < best->cost) *best = {t, time};
            }
    }
    return best->cost < HUGE_VAL;
}

static int rank_strip(const struct conv_call *p, const struct cuda_facts *facts, struct depthwise_tile t,
                      struct ranked list[OF_STRIP])
{
    struct ranked best = {};
    int count = 0, lanes = p->c / t.channels, all = div_up(width_of(p), t.columns);
    if (p->c % t.channels != 0) return 0;
    for (int parts = 1, last = 0; parts <= lanes; parts++) {
        t.across = div_up(lanes, parts);
        int wide = t.across * t.channels;
        if (t.across == last || (parts > 1 && (wide < NARROWEST || wide % 8 != 0))) continue;
        last = t.across;
        t.down = 0;
        for (int cut : cuts) {
            if (div_up(all, cut) == t.down) continue;
            t.down = div_up(all, cut);
            if (ring_choose(p, facts, t, &best)) count = rank(list, count, OF_STRIP, best);
        }
    }
    return count;
}

int depthwise_tiles(const struct conv_call *p, const struct cuda_facts *facts, int most,
                    struct depthwise_tile tiles[])
{
    struct ranked best[OF_STRIP], list[LENGTH(strips) * OF_STRIP];
    struct depthwise_plan plan;
    int count = 0;
    for (const struct depthwise_tile &strip : strips) {
        int kept = rank_strip(p, facts, strip, best);
        for (int i = 0; i < kept; i++)
            if (depthwise_plan_of(p, facts, &best[i].tile, &plan))
                count = rank(list, count, LENGTH(list), best[i]);
    }
    if (count > most) count = most;
    for (int i = 0; i < count; i++) tiles[i] = list[i].tile;
    return count;
}
