/* partition_search.h: the fastest division of a chain of blocks into the stages of a pipeline. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "compile/pipeline_schedule.h"

/* Nodes that stay in one stage. Seconds are of one micro-batch. */
struct partition_block {
    double forward, data, weights;   /* forward, data gradients, weight gradients */
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
    int64_t limit;                   /* bytes of a rank's memory; 0: none */
    /* Bytes that a rank of stage `number` takes: not less for more blocks or fewer replicas. */
    int64_t (*bytes)(void *context, const struct partition_stage *stage, int number);
    void *context;
};

/* Stages of least modelled time, sum(fill) + max(drain) + max(exchange). Where a micro-batch takes a stage c
 * seconds and the border behind it x, fill = c + 2x, drain = (m - 1) max(c, x) for m micro-batches, and
 * exchange is what the last micro-batch's backward does not hide of it. Weight gradients (w) that are apart
 * fill gaps: fill is 2w less then, and drain 2w more. Fills stages[problem->stages] and *seconds; false when
 * nothing fits. */
bool partition_search(const struct partition_problem *problem, struct partition_stage *stages,
                      double *seconds);
