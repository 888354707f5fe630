/* bn_statistics.h: new running statistics of batch norms, since averaged weights have others: the mean, over
 * batches, of each batch's own, as PyTorch's torch.optim.swa_utils.update_bn makes them. */
#pragma once

#include "exec/store.h"

/* A running mean or variance. */
struct running {
    int param;
    double momentum;
    size_t count;
    double *sum;                 /* [count] of the batches' own */
    float *values;               /* [count] scratch memory, and the result */
};

struct bn_statistics {
    struct running *list;        /* empty where no statistics follow the images */
    int count;
    int64_t batches;
};

void bn_statistics_open(const struct graph *graph, struct bn_statistics *statistics);
void bn_statistics_close(struct bn_statistics *statistics);      /* accepts a zeroed struct */

/* To be called before and after each training step, in which nothing but statistics may change. */
enum status bn_statistics_clear(struct bn_statistics *statistics, struct store *store);
enum status bn_statistics_add(struct bn_statistics *statistics, const struct store *store);

/* Makes the means, and writes them to the store. */
enum status bn_statistics_end(struct bn_statistics *statistics, struct store *store);
