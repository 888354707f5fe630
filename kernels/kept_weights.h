/* kept_weights.h: layouts and transforms of weights on the CPU, kept from run to run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A part of a kernel plan's state, which several layers may share: each has its own weights. */
struct kept_weights {
    bool on;                     /* weights do not change any more */
    int count;
    struct kept_weights_of {
        const void *weights;
        void *derived;
    } *list;                     /* [count] */
};

/* Memory of `bytes` at a multiple of 64 for what is derived of these weights, with what was written to it in
 * an earlier run, or `fresh`. NULL: nothing is kept, since it is not on, or there is no memory. */
void *kept_weights_of(struct kept_weights *kept, const void *weights, size_t bytes, bool *fresh);
void kept_weights_free(struct kept_weights *kept);
