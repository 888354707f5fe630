#include "compile/pipeline_schedule.h"

/* The order so far, and the next micro-batch of each kind of block. */
struct order {
    struct pipeline_block *blocks;
    int count;
    int next[BLOCK_WEIGHTS + 1];
};

static void put(struct order *order, enum block_kind kind)
{
    order->blocks[order->count++] = (struct pipeline_block){kind, order->next[kind]++};
}

/* The number of forward blocks before the first backward block. */
static int warm_up(enum pipeline_schedule schedule, int stages, int stage, int micro_batches)
{
    int least = schedule == PIPELINE_GPIPE ? micro_batches : stages - stage - 1;
    return least < micro_batches ? least : micro_batches;
}

/* Weight gradients lag by `stage` micro-batches, to fill the idle time at the end, which is longer in later
 * stages. No stage waits for the first one's data gradients, so there weight gradients are not separate. */
int pipeline_blocks(enum pipeline_schedule schedule, int stages, int stage, int micro_batches,
                    struct pipeline_block *blocks)
{
    struct order order = {.blocks = blocks};
    bool apart = pipeline_weights_apart(schedule, stage);
    for (int k = warm_up(schedule, stages, stage, micro_batches); k > 0; k--) put(&order, BLOCK_FORWARD);
    while (order.next[BLOCK_BACKWARD] < micro_batches) {
        bool forwards = order.next[BLOCK_FORWARD] < micro_batches;
        if (forwards) put(&order, BLOCK_FORWARD);
        put(&order, BLOCK_BACKWARD);
        bool ahead = order.next[BLOCK_BACKWARD] - order.next[BLOCK_WEIGHTS] > stage;
        if (apart && (ahead || !forwards)) put(&order, BLOCK_WEIGHTS);
    }
    while (apart && order.next[BLOCK_WEIGHTS] < micro_batches) put(&order, BLOCK_WEIGHTS);
    return order.count;
}
