/* cut.h: reduces a program to one stage of a pipeline. */
#pragma once

#include "compile/pipeline_schedule.h"
#include "compile/program.h"

struct cut_options {
    int stages, stage;       /* of the pipeline; this program's; stages 0 is 1 */
    enum pipeline_schedule schedule;     /* does not affect bits */
    bool choose;             /* choose the fastest schedule */
    bool on_cpu;             /* stages are processes on processors, not GPUs */
    int64_t limit;           /* of a stage's values, in bytes, the same for all; 0: none */
};

/* The pass: removes what belongs to other stages, and sends and receives what crosses to and from them. */
enum status cut(struct program *program, const struct cut_options *options);

/* The program of a stage of a whole program, whose nodes belong to the stages in `stage`; as program_copy. */
struct program cut_stage(const struct program *program, const struct cut_options *options, const int *stage);

/* The schedule in which a step takes the least simulated time; 1f1b, which takes the least memory, if no
 * other is 2 % faster. All ranks get the same answer. USAGE as partition. */
enum status cut_choose(const struct program *program, const struct cut_options *options,
                       enum pipeline_schedule *schedule);

/* The pass after rank_statistics: all stages update, or skip, by the norm of all gradients. */
void stage_norm(struct program *program);
