/* store.h: the memory that persists between steps: master weights, low-precision copies, averages, optimizer
 * state and statistics. */
#pragma once

#include "device/device.h"
#include "graph/graph.h"
#include "kernels/optimizer/optimizer.h"

#define STORE_NONE (-1)

/* Byte offsets in the block; every part begins at a multiple of 256. */
struct store_slot {
    int64_t master;                          /* fp32, or I64 for counters */
    int64_t low;                             /* the copy that LOW ops read; STORE_NONE: the master is */
    int64_t average;                         /* EMA of trained parameters and of statistics; STORE_NONE */
    int64_t slots[OPTIMIZER_MAX_SLOTS];      /* STORE_NONE where unused */
};

struct store_layout {
    int count;                               /* graph->param_count */
    struct store_slot *params;
    int64_t copies;                          /* the first of `low`: what is in front of it is saved */
    int64_t state;                           /* struct optimizer_state */
    int64_t bytes;
    enum dtype low;
};

struct store_options {
    enum dtype low;                          /* storage dtype of the run's precision */
    const struct optimizer *optimizer;       /* NULL: no training, masters and copies only */
    bool ema;
    bool filled;                             /* the caller writes all parameters, which need not be zeroed */
};

/* Computes the layout, without memory. Weights and biases of LOW ops get copies if `low` is not fp32. */
void store_lay_out(const struct graph *graph, const struct store_options *options,
                   struct store_layout *layout);
void store_layout_free(struct store_layout *layout);

struct store {
    struct device *device;
    const struct graph *graph;
    struct store_layout layout;
    void *memory;                            /* the device's, or the host's ... */
    bool copied;                             /* ... of a store_copy */
};

/* Allocates the block on the device (NO_DEVICE if it does not fit) and zeroes it. */
enum status store_open(struct device *device, const struct graph *graph,
                       const struct store_options *options, struct store *store);
void store_close(struct store *store);

/* Copies the block, but for low-precision copies, into host memory, where store_read and store_read_state
 * read it on any thread. False if that is not possible. Uses the original's layout, which must outlive
 * it. */
bool store_copy(const struct store *store, struct store *copy);

/* Initialises every parameter by its op's rule (random.h, PURPOSE_INIT), then the copies and averages. */
enum status store_init(struct store *store, uint64_t seed);

/* A parameter's part from or to host memory, in torch's shape and order, fp32 (or I64). */
enum store_part { STORE_MASTER, STORE_AVERAGE, STORE_SLOT0, STORE_SLOT1, STORE_SLOT2 };
enum status store_read(const struct store *store, int param, enum store_part part, void *host);
enum status store_write(struct store *store, int param, enum store_part part, const void *host);
/* Writes the masters of a store of the same graph, whose device may hold them in another order, and refreshes
 * the copies. */
enum status store_fill(struct store *store, const struct store *from);
/* A master in the host's memory, as the device holds it. */
float *store_held(const struct store *store, int param);
/* Converts a parameter (or its gradient) from the device's layout to torch's. */
void store_to_torch(const struct store *store, int param, const float *held, float *torch);
bool store_has(const struct store *store, int param, enum store_part part);
enum status store_read_state(const struct store *store, struct optimizer_state *state);
enum status store_write_state(struct store *store, const struct optimizer_state *state);

/* Rewrites every low-precision copy from the masters (after loading). */
enum status store_refresh(struct store *store);

/* Exchanges masters and averages (and statistics with theirs) and refreshes the copies: before and after an
 * evaluation with averaged weights. Calling it twice restores the original. */
enum status store_swap_average(struct store *store);
