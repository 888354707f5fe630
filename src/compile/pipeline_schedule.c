#include "compile/pipeline_schedule.h"

/* Blocks being put in order, and the next micro-batch of each kind. */
struct order {
    struct pipeline_block *blocks;
    int count;
    int next[BLOCK_WEIGHTS + 1];
};

static void put(struct order *order, enum block_kind kind)
{
    order->blocks[order->count++] = (struct pipeline_block){kind, order->next[kind]++};
}

/* Forwards until the first backward can come. */
static int warm_up(enum pipeline_schedule schedule, int stages, int stage, int micro_batches)
{
    int least = schedule == PIPELINE_GPIPE ? micro_batches : stages - stage - 1;
    return least < micro_batches ? least : micro_batches;
}

/* A later stage has less to wait for: weight gradients stay `stage` micro-batches behind, to fill its end.
 * Nobody waits for the first one's data gradients: it has weight gradients beside them. */
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
