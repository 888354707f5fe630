/* partition_times.c: times of chunks, and of a step by its blocks alone. Searches ask for thousands of
 * divisions: simulate.h takes six times as long for the same blocks, before it knows of messages. What they
 * find is compared by simulating the programs (cut_choose.c). */
#include "compile/parallel/partition_times.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

struct partition_sums partition_sums_make(const struct partition_problem *problem)
{
    struct partition_sums sums = {
        .problem = problem, .before = memory_new((size_t)problem->count + 1, sizeof *sums.before),
        .orders = pipeline_orders(problem->schedule, problem->stages, problem->micro_batches),
    };
    for (int i = 0; i < problem->count; i++) {
        const struct partition_block *block = &problem->blocks[i], *before = &sums.before[i];
        sums.before[i + 1] = (struct partition_block){
            .forward = before->forward + block->forward, .data = before->data + block->data,
            .weights = before->weights + block->weights, .launches = before->launches + block->launches,
            .gradients = before->gradients + block->gradients,
        };
    }
    return sums;
}

void partition_sums_free(struct partition_sums *sums)
{
    pipeline_orders_free(sums->orders, sums->problem->stages);
    free(sums->before);
}

struct partition_times partition_times(const struct partition_sums *sums,
                                       const struct partition_chunk *chunk)
{
    const struct partition_problem *problem = sums->problem;
    const struct partition_block *first = &sums->before[chunk->first], *end = &sums->before[chunk->end];
    struct partition_times times = {
        .forward = end->forward - first->forward, .data = end->data - first->data,
        .weights = end->weights - first->weights, .launches = end->launches - first->launches,
    };
    double bytes = (double)(end->gradients - first->gradients), replicas = problem->replicas;
    if (bytes > 0 && replicas > 1) {
        double whole = link_seconds(&problem->link, 2 * (replicas - 1) / replicas * bytes);
        times.exchange = fmax(problem->link.seconds, whole - times.data - times.weights);
    }
    if (chunk->end < problem->count)
        times.message = link_seconds(&problem->link, (double)problem->blocks[chunk->end - 1].crossing);
    return times;
}

struct chunk {
    struct partition_times times;
    const double *hidden;            /* of the boundary behind it */
    double *arrives[BLOCK_WEIGHTS];  /* by kind and micro-batch: when the block's input is there; infinite: it
                                      * has not been sent */
};

/* The state of a stage in the simulation. */
struct worker {
    const struct pipeline_order *order;
    int next;                        /* of the order's blocks */
    double now;                      /* the end of the last one ... */
    double later;                    /* ... but for weight gradients, of which that many seconds are left */
    double sent[2];                  /* the end of the last message to a lower stage, and to a higher one */
};

struct playing {
    const struct partition_problem *problem;
    int chunk_count;
    struct chunk *chunks;
    struct worker *workers;          /* by stage */
};

static void open_chunk(struct playing *play, const struct partition_sums *sums,
                       const struct partition_chunk *chunks, int number)
{
    size_t count = (size_t)play->problem->micro_batches;
    struct chunk *chunk = &play->chunks[number];
    chunk->times = partition_times(sums, &chunks[number]);
    chunk->hidden = play->problem->blocks[chunks[number].end - 1].hidden;
    for (enum block_kind kind = BLOCK_FORWARD; kind <= BLOCK_BACKWARD; kind++) {
        bool given = kind == BLOCK_FORWARD ? number == 0 : number == play->chunk_count - 1;
        chunk->arrives[kind] = memory_new(count, sizeof(double));
        for (size_t k = 0; k < count && !given; k++) chunk->arrives[kind][k] = INFINITY;
    }
}

static struct playing playing_open(const struct partition_sums *sums, const struct partition_chunk *chunks)
{
    const struct partition_problem *problem = sums->problem;
    struct playing play = {.problem = problem, .chunk_count = partition_chunks(problem)};
    play.chunks = memory_new((size_t)play.chunk_count, sizeof *play.chunks);
    play.workers = memory_new((size_t)problem->stages, sizeof *play.workers);
    for (int c = 0; c < play.chunk_count; c++) open_chunk(&play, sums, chunks, c);
    for (int s = 0; s < problem->stages; s++) play.workers[s].order = &sums->orders[s];
    return play;
}

static void playing_close(struct playing *play)
{
    for (int c = 0; c < play->chunk_count; c++)
        for (enum block_kind kind = BLOCK_FORWARD; kind <= BLOCK_BACKWARD; kind++)
            free(play->chunks[c].arrives[kind]);
    free(play->chunks);
    free(play->workers);
}

/* Sends what a block made to the same block of the next chunk, or for backward of the one before. */
static void pass_on(struct playing *play, const struct pipeline_block *block)
{
    const struct partition_problem *problem = play->problem;
    bool forward = block->kind == BLOCK_FORWARD;
    int to = block->chunk + (forward ? 1 : -1);
    int own = pipeline_stage(problem->schedule, problem->stages, block->chunk);
    bool higher = pipeline_stage(problem->schedule, problem->stages, to) > own;
    const struct chunk *boundary = &play->chunks[forward ? block->chunk : to];
    double message = boundary->times.message;
    struct worker *from = &play->workers[own];
    double end = from->now + message - boundary->hidden[forward ? PARTITION_RISES : PARTITION_FALLS];
    from->sent[higher] = fmax(from->sent[higher] + message, end);
    play->chunks[to].arrives[block->kind][block->micro_batch] = from->sent[higher];
    if (problem->sends_itself) from->now = from->sent[higher];
}

/* Seconds of data and weight gradients that run concurrently. */
static double both_gradients(const struct partition_times *times)
{
    return fmax(fmax(times->data, times->weights), times->data + times->weights - times->launches);
}

static double block_seconds(const struct playing *play, const struct pipeline_block *block)
{
    const struct partition_times *times = &play->chunks[block->chunk].times;
    if (block->kind == BLOCK_FORWARD) return times->forward;
    if (block->kind == BLOCK_WEIGHTS) return times->weights;
    bool apart = pipeline_weights_apart(play->problem->schedule, block->chunk);
    return apart ? times->data : both_gradients(times);
}

/* Executes a stage's next block, if its inputs have arrived. Weight gradients fill gaps between others. */
static bool work(struct playing *play, int stage)
{
    struct worker *own = &play->workers[stage];
    if (own->next == own->order->count) return false;
    const struct pipeline_block *block = &own->order->blocks[own->next];
    int c = block->chunk;
    bool weights = block->kind == BLOCK_WEIGHTS;
    double ready = weights ? 0 : play->chunks[c].arrives[block->kind][block->micro_batch];
    if (isinf(ready)) return false;
    own->next++;
    if (weights) {
        own->later += block_seconds(play, block);
        return true;
    }
    own->later -= fmin(own->later, fmax(0, ready - own->now));
    own->now = fmax(own->now, ready) + block_seconds(play, block);
    bool sends = block->kind == BLOCK_FORWARD ? c < play->chunk_count - 1 : c > 0;
    if (sends) pass_on(play, block);
    return true;
}

double partition_step(const struct partition_sums *sums, const struct partition_chunk *chunks)
{
    int workers = sums->problem->stages;
    struct playing play = playing_open(sums, chunks);
    double end = 0, exchange = 0;
    for (bool works = true; works;) {
        works = false;
        for (int s = 0; s < workers; s++)
            while (work(&play, s)) works = true;
    }
    for (int s = 0; s < workers; s++) end = fmax(end, play.workers[s].now + play.workers[s].later);
    for (int c = 0; c < play.chunk_count; c++) exchange = fmax(exchange, play.chunks[c].times.exchange);
    playing_close(&play);
    return end + exchange;
}
