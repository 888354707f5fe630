/* pipeline_schedule.h: the order in which a pipeline stage computes the micro-batches of a step. */
#pragma once

#include <stdbool.h>

enum pipeline_schedule {
    PIPELINE_GPIPE,          /* all forwards, then all backwards (Huang et al. 2019) */
    PIPELINE_1F1B,           /* alternating forward and backward, as early as possible (Narayanan et al.
                              * 2019) */
    PIPELINE_ZERO_BUBBLE,    /* the same, with separate, later weight gradients: ZB-H1 (Qi et al. 2023) */
};

enum block_kind {
    BLOCK_FORWARD,
    BLOCK_BACKWARD,          /* includes weight gradients, unless they are separate */
    BLOCK_WEIGHTS,
};
struct pipeline_block {
    enum block_kind kind;
    int micro_batch;
};

/* Whether a stage computes weight gradients separately. */
static inline bool pipeline_weights_apart(enum pipeline_schedule schedule, int stage)
{
    return schedule == PIPELINE_ZERO_BUBBLE && stage > 0;
}

/* The blocks of a stage in order; fills blocks[3 * micro_batches] and returns their number. */
int pipeline_blocks(enum pipeline_schedule schedule, int stages, int stage, int micro_batches,
                    struct pipeline_block *blocks);
