/* partition_times.h: the division of a chain of blocks into the chunks of a pipeline, and the modelled times
 * of the chunks and of a step. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "compile/parallel/pipeline_schedule.h"
#include "compile/time/machine.h"

enum partition_way { PARTITION_RISES, PARTITION_FALLS, PARTITION_WAYS };     /* activations; gradients */

#define PARTITION_NEVER (INT64_C(1) << 60)       /* bytes across a boundary at which no chunk may end */

/* Nodes that stay in one chunk. All seconds are those of one micro-batch. */
struct partition_block {
    double forward, data, weights;   /* forward, data gradients, weight gradients */
    double launches;                 /* of both gradients; each overlaps with computation of the other */
    int64_t crossing;                /* bytes of a micro-batch that cross the boundary after it; their
                                      * gradients return; PARTITION_NEVER: the next block stays with it */
    double hidden[PARTITION_WAYS];   /* seconds gained by sending each value when it is ready, not at the end
                                      * of the chunk; ignored by partition_search */
    int64_t gradients;               /* bytes of its parameters' gradients */
};

/* Blocks [first, end). */
struct partition_chunk {
    int first, end;
};

struct partition_problem {
    const struct partition_block *blocks;
    int count;
    int stages;
    int replicas;                    /* pipelines that exchange gradients */
    int micro_batches;
    enum pipeline_schedule schedule;
    struct link link;                /* between ranks */
    bool sends_itself;               /* a stage does not compute while it sends; partition_search
                                      * ignores it */
    int64_t limit;                   /* bytes of a rank's memory, if stages have one chunk; 0: none */
    /* Bytes that a rank of stage `number` needs; must not decrease with more blocks. */
    int64_t (*bytes)(void *context, const struct partition_chunk *chunk, int number);
    void *context;
};

/* The number of chunks. */
static inline int partition_chunks(const struct partition_problem *problem)
{
    return pipeline_chunks(problem->schedule, problem->stages);
}

/* True if a chunk may end after that many blocks. */
static inline bool partition_may_end(const struct partition_problem *problem, int blocks)
{
    return blocks == problem->count || problem->blocks[blocks - 1].crossing < PARTITION_NEVER;
}

/* Sums over the blocks before each, and over all; the problem's schedule. */
struct partition_sums {
    const struct partition_problem *problem;
    struct pipeline_order *orders;      /* [stages] */
    struct partition_block *before;     /* [count + 1] */
};
struct partition_sums partition_sums_make(const struct partition_problem *problem);
void partition_sums_free(struct partition_sums *sums);

/* Seconds of a chunk: of a micro-batch; of its message to the next chunk, 0 for the last one; and the part of
 * the exchange among replicas that backward of the last micro-batch does not hide. */
struct partition_times {
    double forward, data, weights, launches, message, exchange;
};
struct partition_times partition_times(const struct partition_sums *sums,
                                       const struct partition_chunk *chunk);

/* Seconds of a step in which all stages execute their blocks in the order of the schedule. A message is sent
 * after its block and the preceding message in that direction. */
double partition_step(const struct partition_sums *sums, const struct partition_chunk *chunks);
