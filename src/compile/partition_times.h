/* partition_times.h: a chain of blocks that is divided into the stages of a pipeline, and how long these take,
 * and a step of all of them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "compile/pipeline_schedule.h"

/* Nodes that stay in one stage. Seconds are of one micro-batch. */
struct partition_block {
    double forward, data, weights;   /* forward, data gradients, weight gradients */
    double launches;                 /* of both gradients: one does not compute then, but the other may */
    int64_t crossing;                /* bytes of a micro-batch that cross the boundary behind it; their
                                      * gradients return */
    int64_t gradients;               /* bytes of its parameters' gradients */
};

struct partition_link {
    double seconds, bytes_per_second;
};

/* Blocks [first, end), computed by `replicas` ranks, each of which takes a part of every micro-batch. */
struct partition_stage {
    int first, end, replicas;
};

struct partition_problem {
    const struct partition_block *const *blocks;   /* [replicas_max][count]: for a micro-batch shared by 1, 2,
                                                    * ... replicas */
    int count, replicas_max;
    int stages, ranks;               /* all ranks are used */
    int side_by_side;                /* number of pipelines that exchange gradients */
    int micro_batches;
    enum pipeline_schedule schedule;
    struct partition_link message, exchange;       /* between neighbours; among replicas */
    bool sends_itself;               /* a stage computes nothing while it sends; not in partition_search */
    int64_t limit;                   /* bytes of a rank's memory; 0: none */
    /* Bytes that a rank of stage `number` takes: not less for more blocks or fewer replicas. */
    int64_t (*bytes)(void *context, const struct partition_stage *stage, int number);
    void *context;
};

/* Sums over the blocks before each of a problem's, and before its end. */
struct partition_sums {
    const struct partition_problem *problem;
    double *forward, *data, *weights, *launches;   /* [replicas_max][count + 1] */
    int64_t *gradients;                 /* [count + 1] */
};
struct partition_sums partition_sums_make(const struct partition_problem *problem);
void partition_sums_free(struct partition_sums *sums);

/* Seconds of a stage: of a micro-batch; of a message over the boundary behind it, 0 for the last stage; and
 * what backward of the last micro-batch does not hide of its exchange among replicas. `wide`: replicas of the
 * stage behind it. */
struct partition_times {
    double forward, data, weights, launches, message, exchange;
};
struct partition_times partition_times(const struct partition_sums *sums, const struct partition_stage *stage,
                                       int wide);

/* Seconds of a step of all stages, each of which works on its blocks in the order of the schedule. A message
 * is sent when its block has ended and the one before it that way has been sent. */
double partition_step(const struct partition_sums *sums, const struct partition_stage *stages);
