/* partition_times.h: the division of a chain of blocks into the stages of a pipeline, and the modelled times
 * of the stages and of a step. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "compile/parallel/pipeline_schedule.h"
#include "compile/time/machine.h"

enum partition_way { PARTITION_RISES, PARTITION_FALLS, PARTITION_WAYS };     /* activations; gradients */

#define PARTITION_NEVER (INT64_C(1) << 60)       /* bytes across a boundary at which no stage may end */

/* Nodes that stay in one stage. All seconds are those of one micro-batch. */
struct partition_block {
    double forward, data, weights;   /* forward, data gradients, weight gradients */
    double launches;                 /* of both gradients; each overlaps with computation of the other */
    int64_t crossing;                /* bytes of a micro-batch that cross the boundary after it; their
                                      * gradients return; PARTITION_NEVER: the next block stays with it */
    double hidden[PARTITION_WAYS];   /* seconds gained by sending each value when it is ready, not at the end
                                      * of the chunk; ignored by partition_search */
    int64_t gradients;               /* bytes of its parameters' gradients */
};

/* A stage, or with PIPELINE_V a chunk: blocks [first, end), computed by `replicas` ranks, each on its part of
 * every micro-batch. */
struct partition_stage {
    int first, end, replicas;
};

struct partition_problem {
    const struct partition_block *const *blocks;   /* [replicas_max][count]: a micro-batch is shared by 1, 2,
                                                    * ... replicas */
    int count, replicas_max;
    int stages, ranks;               /* all ranks are used */
    int side_by_side;                /* pipelines that exchange gradients */
    int micro_batches;
    enum pipeline_schedule schedule;
    struct link message, exchange;   /* between neighbours; among replicas */
    bool sends_itself;               /* a stage does not compute while it sends; partition_search
                                      * ignores it */
    int64_t limit;                   /* bytes of a rank's memory; 0: none */
    /* Bytes that a rank of stage `number` needs; must not decrease with more blocks or fewer replicas. */
    int64_t (*bytes)(void *context, const struct partition_stage *stage, int number);
    void *context;
};

/* The number of partition_stages. */
static inline int partition_chunks(const struct partition_problem *problem)
{
    return pipeline_chunks(problem->schedule, problem->stages);
}

/* Whether a stage may end after that many blocks. */
static inline bool partition_may_end(const struct partition_problem *problem, int blocks)
{
    return blocks == problem->count || problem->blocks[0][blocks - 1].crossing < PARTITION_NEVER;
}

/* Prefix sums over a problem's blocks, and its schedule. */
struct partition_sums {
    const struct partition_problem *problem;
    struct pipeline_order *orders;      /* [stages] */
    double *forward, *data, *weights, *launches;   /* [replicas_max][count + 1] */
    int64_t *gradients;                 /* [count + 1] */
};
struct partition_sums partition_sums_make(const struct partition_problem *problem);
void partition_sums_free(struct partition_sums *sums);

/* Seconds of a stage: of a micro-batch; of its message to the next stage, 0 for the last one; and the part of
 * the exchange among replicas that backward of the last micro-batch does not hide. `wide`: replicas of the
 * next stage. */
struct partition_times {
    double forward, data, weights, launches, message, exchange;
};
struct partition_times partition_times(const struct partition_sums *sums, const struct partition_stage *stage,
                                       int wide);

/* Seconds of a step in which all stages execute their blocks in the order of the schedule. A message is sent
 * after its block and the preceding message in that direction. */
double partition_step(const struct partition_sums *sums, const struct partition_stage *stages);
