/* cut.h: reduces a program to one stage of a pipeline. */
#pragma once

#include "compile/pipeline_schedule.h"
#include "compile/program.h"

struct cut_options {
    int stages, stage;       /* of the pipeline; this program's; stages 0 is 1 */
    enum pipeline_schedule schedule;     /* bits do not depend on it */
    bool choose;             /* the schedule is whichever takes the least time */
    bool on_cpu;             /* stages are processes on processors, not GPUs */
    int64_t limit;           /* of a stage's values, in bytes, the same for all; 0: none */
};

/* The pass: what belongs to other stages goes, and what crosses to and from them is sent and received. */
enum status cut(struct program *program, const struct cut_options *options);

/* The program of a stage, where a whole one's nodes belong to the stages that `stage` says; as
 * program_copy. */
struct program cut_stage(const struct program *program, const struct cut_options *options, const int *stage);

/* The schedule in which a step takes the least simulated time; 1f1b, which takes the least memory, if no
 * other is 2 % faster. All ranks get the same answer. USAGE as partition. */
enum status cut_choose(const struct program *program, const struct cut_options *options,
                       enum pipeline_schedule *schedule);

/* The pass that follows rank_statistics: all stages update, or skip, by the norm of the gradients of all. */
void stage_norm(struct program *program);
