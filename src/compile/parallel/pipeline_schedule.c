/* pipeline_schedule.c: the orders of blocks; that of PIPELINE_V by list scheduling: all stages are simulated,
 * with assumed times of blocks, and a stage that is free takes the best of the blocks whose inputs are there.
 * So the order depends on nothing but the numbers of stages and micro-batches. */
#include "compile/parallel/pipeline_schedule.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

#define KINDS (BLOCK_WEIGHTS + 1)
#define NEVER 1e9
#define MESSAGE 2            /* seconds; see seconds_of */

/* The order of a stage so far, and the next micro-batch of each kind of block. */
struct ordering {
    struct pipeline_order *order;
    int stage;
    int next[KINDS];
};

static void put(struct ordering *o, enum block_kind kind)
{
    o->order->blocks[o->order->count++] = (struct pipeline_block){kind, o->next[kind]++, o->stage};
}

/* The number of forward blocks before the first backward block. */
static int warm_up(enum pipeline_schedule schedule, int stages, int stage, int micro_batches)
{
    int least = schedule == PIPELINE_GPIPE ? micro_batches : stages - stage - 1;
    return least < micro_batches ? least : micro_batches;
}

/* All stages, with PIPELINE_V. */
struct v {
    int stages, chunks, micro_batches;
    double *ends;            /* by chunk, micro-batch and kind; NEVER: not begun */
    double *free;            /* by stage: when its last block ends */
    int alive;               /* micro-batches between forward and backward of the first chunk */
};

/* A block that could be next, and when. */
struct candidate {
    struct pipeline_block block;
    double begins;
    int urgency;
};

static int cell_of(int micro_batches, enum block_kind kind, int micro_batch, int chunk)
{
    return (chunk * micro_batches + micro_batch) * KINDS + (int)kind;
}

static double *end_of(const struct v *v, enum block_kind kind, int micro_batch, int chunk)
{
    return &v->ends[cell_of(v->micro_batches, kind, micro_batch, chunk)];
}

/* Seconds of a chunk's block, relative to those of others, as of residual networks on GPUs. The only chunk of
 * the first stage is as long as two. Backward of the first chunk includes weight gradients. */
static double seconds_of(const struct v *v, const struct pipeline_block *block)
{
    static const double by_kind[KINDS] = {[BLOCK_FORWARD] = 4, [BLOCK_BACKWARD] = 5, [BLOCK_WEIGHTS] = 2};
    double seconds = by_kind[block->kind];
    if (block->kind == BLOCK_BACKWARD && block->chunk == 0) seconds += by_kind[BLOCK_WEIGHTS];
    return block->chunk == v->stages - 1 && v->stages > 1 ? 2 * seconds : seconds;
}

/* The chunk whose message a block waits for; -1: none. */
static int sender_of(int chunks, const struct pipeline_block *block)
{
    if (block->kind == BLOCK_FORWARD) return block->chunk - 1;
    return block->kind == BLOCK_BACKWARD && block->chunk + 1 < chunks ? block->chunk + 1 : -1;
}

/* When what a block reads is there. */
static double ready_at(const struct v *v, const struct pipeline_block *block)
{
    int k = block->micro_batch, from = sender_of(v->chunks, block);
    double ready = from >= 0 ? *end_of(v, block->kind, k, from) + MESSAGE : 0;
    if (block->kind == BLOCK_FORWARD) return fmin(NEVER, ready);
    double own = *end_of(v, block->kind - 1, k, block->chunk);
    return fmin(NEVER, fmax(own, ready));
}

static int stage_of(const struct v *v, int chunk)
{
    return pipeline_stage(PIPELINE_V, v->stages, chunk);
}

/* A chunk's blocks of a kind are in the order of micro-batches. Memory for activations limits how many
 * micro-batches may be under way. */
static struct candidate candidate_of(const struct v *v, enum block_kind kind, int chunk)
{
    struct candidate none = {.begins = NEVER};
    struct pipeline_block block = {kind, 0, chunk};
    if (kind == BLOCK_WEIGHTS && !pipeline_weights_apart(PIPELINE_V, chunk)) return none;
    while (block.micro_batch < v->micro_batches && *end_of(v, kind, block.micro_batch, chunk) < NEVER)
        block.micro_batch++;
    if (block.micro_batch == v->micro_batches || ready_at(v, &block) == NEVER) return none;
    if (kind == BLOCK_FORWARD && chunk == 0 && v->alive == 2 * v->stages - 1) return none;
    static const int by_kind[KINDS] = {[BLOCK_FORWARD] = 1, [BLOCK_BACKWARD] = 2};
    double begins = fmax(ready_at(v, &block), v->free[stage_of(v, chunk)]);
    return (struct candidate){block, begins, by_kind[kind] * v->chunks + chunk};
}

static struct candidate better(struct candidate a, struct candidate b)
{
    if (a.begins != b.begins) return a.begins < b.begins ? a : b;
    return a.urgency >= b.urgency ? a : b;
}

/* The block that begins next, of all stages; begins is NEVER when there are no more. */
static struct candidate next_of(const struct v *v)
{
    struct candidate next = {.begins = NEVER};
    for (int chunk = 0; chunk < v->chunks; chunk++)
        for (enum block_kind kind = BLOCK_FORWARD; kind <= BLOCK_WEIGHTS; kind++)
            next = better(next, candidate_of(v, kind, chunk));
    return next;
}

static void v_orders(int stages, int micro_batches, struct pipeline_order *orders)
{
    struct v v = {.stages = stages, .chunks = pipeline_chunks(PIPELINE_V, stages),
                  .micro_batches = micro_batches};
    int cells = v.chunks * micro_batches * KINDS;
    v.ends = memory_new((size_t)cells, sizeof *v.ends);
    v.free = memory_new((size_t)stages, sizeof *v.free);
    for (int k = 0; k < cells; k++) v.ends[k] = NEVER;
    for (struct candidate next = next_of(&v); next.begins < NEVER; next = next_of(&v)) {
        struct pipeline_block *block = &next.block;
        int its = stage_of(&v, block->chunk);
        v.free[its] = next.begins + seconds_of(&v, block);
        *end_of(&v, block->kind, block->micro_batch, block->chunk) = v.free[its];
        if (block->chunk == 0) v.alive += block->kind == BLOCK_FORWARD ? 1 : -1;
        orders[its].blocks[orders[its].count++] = *block;
    }
    free(v.ends);
    free(v.free);
}

/* Weight gradients lag by `stage` micro-batches, to fill the idle time at the end, which is longer in later
 * stages. No stage waits for the first one's data gradients, so there weight gradients are not separate. */
static void stage_order(enum pipeline_schedule schedule, int stages, int stage, int micro_batches,
                        struct pipeline_order *order)
{
    struct ordering o = {.order = order, .stage = stage};
    bool apart = pipeline_weights_apart(schedule, stage);
    for (int k = warm_up(schedule, stages, stage, micro_batches); k > 0; k--) put(&o, BLOCK_FORWARD);
    while (o.next[BLOCK_BACKWARD] < micro_batches) {
        bool forwards = o.next[BLOCK_FORWARD] < micro_batches;
        if (forwards) put(&o, BLOCK_FORWARD);
        put(&o, BLOCK_BACKWARD);
        bool ahead = o.next[BLOCK_BACKWARD] - o.next[BLOCK_WEIGHTS] > stage;
        if (apart && (ahead || !forwards)) put(&o, BLOCK_WEIGHTS);
    }
    while (apart && o.next[BLOCK_WEIGHTS] < micro_batches) put(&o, BLOCK_WEIGHTS);
}

struct pipeline_order *pipeline_orders(enum pipeline_schedule schedule, int stages, int micro_batches)
{
    struct pipeline_order *orders = memory_new((size_t)stages, sizeof *orders);
    bool v = pipeline_interleaves(schedule);
    int most = (v ? 2 : 1) * KINDS * micro_batches;
    for (int s = 0; s < stages; s++) {
        orders[s].blocks = memory_new((size_t)most, sizeof *orders[s].blocks);
        if (!v) stage_order(schedule, stages, s, micro_batches, &orders[s]);
    }
    if (v) v_orders(stages, micro_batches, orders);
    return orders;
}

void pipeline_orders_free(struct pipeline_order *orders, int stages)
{
    for (int s = 0; s < stages; s++) free(orders[s].blocks);
    free(orders);
}

struct pipeline_order pipeline_sequence(const struct pipeline_order *orders, enum pipeline_schedule schedule,
                                        int stages, int micro_batches)
{
    int chunks = pipeline_chunks(schedule, stages), count = 0;
    int *next = memory_new((size_t)stages, sizeof *next);
    int *rounds = memory_new((size_t)(chunks * micro_batches * KINDS), sizeof *rounds);
    for (int s = 0; s < stages; s++) count += orders[s].count;
    struct pipeline_order sequence = {.blocks = memory_new((size_t)count, sizeof *sequence.blocks)};
    for (int round = 1; sequence.count < count; round++)
        for (int s = 0; s < stages; s++) {
            const struct pipeline_block *block = &orders[s].blocks[next[s]];
            if (next[s] == orders[s].count) continue;
            int from = sender_of(chunks, block), k = block->micro_batch;
            int sent = from < 0 ? 0 : rounds[cell_of(micro_batches, block->kind, k, from)];
            if (from >= 0 && (sent == 0 || sent == round)) continue;
            rounds[cell_of(micro_batches, block->kind, k, block->chunk)] = round;
            sequence.blocks[sequence.count++] = *block;
            next[s]++;
        }
    free(next);
    free(rounds);
    return sequence;
}
