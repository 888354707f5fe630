/* cut.h: reduces a program to one stage of a pipeline. */
#pragma once

#include "compile/parallel/pipeline_schedule.h"
#include "compile/ir/program.h"

struct cut_options {
    int stages, stage;       /* of the pipeline; this program's; stages 0 is 1 */
    enum pipeline_schedule schedule;     /* does not affect bits */
    bool choose;             /* choose the fastest schedule */
    bool on_cpu;             /* stages are processes on processors, not GPUs */
    int64_t limit;           /* of a stage's values, in bytes, the same for all; 0: none */
    bool in_mail;            /* messages stay where their sender has written them: HOME_MAIL */
    const int *node_stages;  /* by node, from another stage's program of this step; NULL: unknown */
};

/* The pass: removes what belongs to other stages, and sends and receives what crosses boundaries. It
 * takes partition's division, and the schedule if one is to be chosen, of least simulated time, and moves its
 * boundaries as long as that decreases. A schedule other than 1f1b, which needs the least memory, must be 2 %
 * faster. All ranks get the same result. USAGE as partition. */
enum status cut(struct program *program, const struct cut_options *options);

/* Options for other stages of a cut program: its division, which it still owns, and schedule. */
struct cut_options cut_like(const struct program *program, const struct cut_options *options);

/* Keeps one stage of the division `stage`, by node, which the program then owns. */
void cut_at(struct program *program, const struct cut_options *options, int *stage);

/* The program of a stage of a whole program; as program_copy. */
struct program cut_stage(const struct program *program, const struct cut_options *options, const int *stage);
