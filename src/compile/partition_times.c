#include "compile/partition_times.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

struct partition_sums partition_sums_make(const struct partition_problem *problem)
{
    size_t count = (size_t)problem->count + 1, all = (size_t)problem->replicas_max * count;
    struct partition_sums sums = {
        .problem = problem,
        .forward = memory_new(all, sizeof(double)), .data = memory_new(all, sizeof(double)),
        .weights = memory_new(all, sizeof(double)), .launches = memory_new(all, sizeof(double)),
        .gradients = memory_new(count, sizeof(int64_t)),
    };
    for (int r = 0; r < problem->replicas_max; r++)
        for (int i = 0; i < problem->count; i++) {
            const struct partition_block *block = &problem->blocks[r][i];
            size_t at = (size_t)r * count + (size_t)i;
            sums.forward[at + 1] = sums.forward[at] + block->forward;
            sums.data[at + 1] = sums.data[at] + block->data;
            sums.weights[at + 1] = sums.weights[at] + block->weights;
            sums.launches[at + 1] = sums.launches[at] + block->launches;
            sums.gradients[i + 1] = problem->blocks[0][i].gradients + (i ? sums.gradients[i] : 0);
        }
    return sums;
}

void partition_sums_free(struct partition_sums *sums)
{
    free(sums->forward);
    free(sums->data);
    free(sums->weights);
    free(sums->launches);
    free(sums->gradients);
}

static double part(const struct partition_sums *sums, const double *of, const struct partition_stage *stage)
{
    size_t at = (size_t)(stage->replicas - 1) * (size_t)(sums->problem->count + 1);
    return of[at + (size_t)stage->end] - of[at + (size_t)stage->first];
}

static double link_seconds(const struct partition_link *link, double bytes)
{
    return link->seconds + bytes / link->bytes_per_second;
}

static double exchange_exposed(const struct partition_sums *sums, const struct partition_stage *stage,
                               double hidden)
{
    const struct partition_problem *problem = sums->problem;
    int64_t bytes = sums->gradients[stage->end] - sums->gradients[stage->first];
    int ranks = stage->replicas * problem->side_by_side;
    if (bytes == 0 || ranks == 1) return 0;
    double moved = 2.0 * (ranks - 1) / ranks * (double)bytes;
    return fmax(problem->exchange.seconds, link_seconds(&problem->exchange, moved) - hidden);
}

struct partition_times partition_times(const struct partition_sums *sums, const struct partition_stage *stage,
                                       int wide)
{
    const struct partition_problem *problem = sums->problem;
    struct partition_times times = {
        .forward = part(sums, sums->forward, stage), .data = part(sums, sums->data, stage),
        .weights = part(sums, sums->weights, stage), .launches = part(sums, sums->launches, stage),
    };
    times.exchange = exchange_exposed(sums, stage, times.data + times.weights);
    if (stage->end == problem->count) return times;
    if (wide > stage->replicas) wide = stage->replicas;
    times.message =
        link_seconds(&problem->message, (double)problem->blocks[0][stage->end - 1].crossing / wide);
    return times;
}

enum way { RISES, FALLS, WAYS };     /* directions of messages: to the next stage, to the preceding one */

/* The state of a stage in the simulation. */
struct worker {
    struct partition_times times;
    struct pipeline_block *blocks;   /* in order ... */
    int count, next;                 /* ... and the next one to work on */
    double now;                      /* the end of the last one */
    double *arrives[WAYS];           /* by micro-batch: arrival of its message; infinite: not sent yet */
    double sent[WAYS];               /* the end of the last message in that direction */
};

static struct worker worker_open(const struct partition_problem *problem, int stage)
{
    size_t count = (size_t)problem->micro_batches;
    struct worker worker = {.blocks = memory_new(3 * count, sizeof *worker.blocks)};
    worker.count = pipeline_blocks(problem->schedule, problem->stages, stage, (int)count, worker.blocks);
    for (enum way w = 0; w < WAYS; w++) {
        worker.arrives[w] = memory_new(count, sizeof(double));
        for (size_t k = 0; k < count; k++) worker.arrives[w][k] = INFINITY;
    }
    return worker;
}

static void worker_close(struct worker *worker)
{
    free(worker->blocks);
    for (enum way w = 0; w < WAYS; w++) free(worker->arrives[w]);
}

/* Sends what is ready to another stage, over a boundary that takes `message` seconds. */
static void pass_on(const struct partition_problem *problem, struct worker *from, struct worker *to,
                    enum way way, int micro_batch, double message)
{
    from->sent[way] = fmax(from->sent[way], from->now) + message;
    to->arrives[way][micro_batch] = from->sent[way];
    if (problem->sends_itself) from->now = from->sent[way];
}

/* Seconds of data and weight gradients that run concurrently. */
static double both_gradients(const struct partition_times *times)
{
    return fmax(fmax(times->data, times->weights), times->data + times->weights - times->launches);
}

/* Executes a stage's next block, if its inputs have arrived. */
static bool work(const struct partition_problem *problem, struct worker *workers, int stage)
{
    struct worker *own = &workers[stage];
    if (own->next == own->count) return false;
    const struct pipeline_block *block = &own->blocks[own->next];
    const struct partition_times *times = &own->times;
    int k = block->micro_batch;
    bool last = stage == problem->stages - 1, forward = block->kind == BLOCK_FORWARD;
    bool apart = pipeline_weights_apart(problem->schedule, stage);
    double ready = 0, seconds = forward ? times->forward : apart ? times->data : both_gradients(times);
    if (forward && stage > 0) ready = own->arrives[RISES][k];
    if (block->kind == BLOCK_BACKWARD && !last) ready = own->arrives[FALLS][k];
    if (block->kind == BLOCK_WEIGHTS) seconds = times->weights;
    if (isinf(ready)) return false;
    own->next++;
    own->now = fmax(own->now, ready) + seconds;
    if (forward && !last) pass_on(problem, own, own + 1, RISES, k, times->message);
    if (block->kind == BLOCK_BACKWARD && stage > 0)
        pass_on(problem, own, own - 1, FALLS, k, own[-1].times.message);
    return true;
}

double partition_step(const struct partition_sums *sums, const struct partition_stage *stages)
{
    const struct partition_problem *problem = sums->problem;
    struct worker *workers = memory_new((size_t)problem->stages, sizeof *workers);
    double end = 0, exchange = 0;
    for (int s = 0; s < problem->stages; s++) {
        int wide = s < problem->stages - 1 ? stages[s + 1].replicas : 1;
        workers[s] = worker_open(problem, s);
        workers[s].times = partition_times(sums, &stages[s], wide);
    }
    for (bool works = true; works;) {
        works = false;
        for (int s = 0; s < problem->stages; s++)
            while (work(problem, workers, s)) works = true;
    }
    for (int s = 0; s < problem->stages; s++) {
        end = fmax(end, workers[s].now);
        exchange = fmax(exchange, workers[s].times.exchange);
        worker_close(&workers[s]);
    }
    free(workers);
    return end + exchange;
}
