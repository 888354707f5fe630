/* pipeline_schedule.h: the order in which a pipeline stage computes the micro-batches of a step. */
#pragma once

enum pipeline_schedule {
    PIPELINE_GPIPE,          /* all forwards, then all backwards (Huang et al. 2019) */
    PIPELINE_1F1B,           /* forward and backward in turn, as soon as possible (Narayanan et al. 2019) */
    PIPELINE_ZERO_BUBBLE,    /* the same, weight gradients apart and later: ZB-H1 (Qi et al. 2023) */
};

enum block_kind {
    BLOCK_FORWARD,
    BLOCK_BACKWARD,          /* weight gradients included, but for PIPELINE_ZERO_BUBBLE */
    BLOCK_WEIGHTS,
};
struct pipeline_block {
    enum block_kind kind;
    int micro_batch;
};

/* The work of a stage in its order; blocks[3 * micro_batches] is filled. Returns how many there are. */
int pipeline_blocks(enum pipeline_schedule schedule, int stages, int stage, int micro_batches,
                    struct pipeline_block *blocks);
