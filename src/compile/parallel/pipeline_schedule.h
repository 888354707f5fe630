/* pipeline_schedule.h: the order in which a pipeline stage computes the micro-batches of a step.
 *
 * The network is divided into chunks, which follow each other. A stage has one of them; with
 * PIPELINE_V two, of which one is as far from the first chunk as the other from the last. */
#pragma once

#include <stdbool.h>

enum pipeline_schedule {
    PIPELINE_GPIPE,          /* all forwards, then all backwards (Huang et al. 2019) */
    PIPELINE_1F1B,           /* alternating forward and backward, as early as possible (Narayanan et al.
                              * 2019) */
    PIPELINE_ZERO_BUBBLE,    /* the same, with separate, later weight gradients: ZB-H1 (Qi et al. 2023) */
    PIPELINE_V,              /* two chunks a stage, but for one: a micro-batch goes from the last stage to the
                              * first and back (ZB-V, Qi et al. 2024) */
};
#define PIPELINE_SCHEDULES (PIPELINE_V + 1)

enum block_kind {
    BLOCK_FORWARD,
    BLOCK_BACKWARD,          /* includes weight gradients, unless they are separate */
    BLOCK_WEIGHTS,
};
struct pipeline_block {
    enum block_kind kind;
    int micro_batch, chunk;
};

/* True if stages have two chunks, whose micro-batches come by turns. */
static inline bool pipeline_interleaves(enum pipeline_schedule schedule)
{
    return schedule == PIPELINE_V;
}

static inline int pipeline_chunks(enum pipeline_schedule schedule, int stages)
{
    return pipeline_interleaves(schedule) ? 2 * stages - 1 : stages;
}

/* The stage that has a chunk; the last stage has the last one. */
static inline int pipeline_stage(enum pipeline_schedule schedule, int stages, int chunk)
{
    if (!pipeline_interleaves(schedule)) return chunk;
    return chunk < stages ? stages - 1 - chunk : chunk - (stages - 1);
}

/* True if weight gradients of a chunk are separate: nobody waits for the first one's data gradients. */
static inline bool pipeline_weights_apart(enum pipeline_schedule schedule, int chunk)
{
    return (schedule == PIPELINE_ZERO_BUBBLE || pipeline_interleaves(schedule)) && chunk > 0;
}

/* The blocks of a stage in their order. */
struct pipeline_order {
    struct pipeline_block *blocks;
    int count;
};

/* [stages]; the caller frees them with pipeline_orders_free. */
struct pipeline_order *pipeline_orders(enum pipeline_schedule schedule, int stages, int micro_batches);
void pipeline_orders_free(struct pipeline_order *orders, int stages);

/* The blocks of all stages in one order, as if each took the same time: that of every stage, and each block
 * follows those whose results it reads. The caller frees `blocks`. */
struct pipeline_order pipeline_sequence(const struct pipeline_order *orders, enum pipeline_schedule schedule,
                                        int stages, int micro_batches);
