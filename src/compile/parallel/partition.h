/* partition.h: assigns each node of a network to a stage of a pipeline. */
#pragma once

#include "compile/parallel/cluster.h"
#include "compile/parallel/pipeline_schedule.h"
#include "compile/ir/program.h"

struct partition_options {
    int stages;
    enum pipeline_schedule schedule;
    bool on_cpu;             /* stages are processes on processors, not GPUs */
    int64_t limit;           /* bytes of memory of a stage; 0: none */
    /* The bytes of stage `number` if nothing is recomputed and nodes are in the stages given by `stage`. NULL
     * without a limit. */
    int64_t (*bytes)(const struct program *program, const struct partition_options *options, const int *stage,
                     int number);
};

/* stage[program->graph->count]: from 0 to stages - 1 in non-decreasing order (PIPELINE_V: from stages - 1 to
 * 0 and back): the division of least modelled time (partition_search.h) among those within the limit, if any
 * (PIPELINE_V: the limit is ignored); `seconds`: of a step. moved[]: the same with boundaries moved to
 * minimise the time in the schedule's order (partition_move.h); may be NULL. `program` is a training step
 * before the cut. All ranks get the same result, since nothing is measured. USAGE if the network has too few
 * nodes. */
enum status partition(const struct program *program, const struct partition_options *options, int *stage,
                      int *moved, double *seconds);

/* may_end[program->graph->count]: whether a stage may end after a node. */
void partition_ends(const struct program *program, bool *may_end);
/* The maximum number of parts into which the network can be cut. */
int partition_parts(const struct program *program);

/* The devices that the pipelines run on, as all ranks know them. */
struct cluster partition_cluster(const struct program *program, int stages);
