/* cut.h: a program becomes that of one stage of a pipeline. */
#pragma once

#include "compile/pipeline_schedule.h"
#include "compile/program.h"

struct cut_options {
    int stages, stage;       /* of the pipeline; this program's; stages 0 is 1 */
    enum pipeline_schedule schedule;     /* bits do not depend on it */
    bool on_cpu;             /* stages are processes on processors, not GPUs */
    int64_t limit;           /* of a stage's values, in bytes, the same for all; 0: none */
};

/* The pass: what belongs to other stages goes, and what crosses to and from them is sent and received. */
enum status cut(struct program *program, const struct cut_options *options);

/* The pass that follows rank_statistics: all stages update, or skip, by the norm of the gradients of all. */
void stage_norm(struct program *program);
