/* buckets.h: the exchange of gradients among ranks in contiguous buckets. */
#pragma once

#include "compile/ir/program.h"

struct bucket_options {
    int64_t bytes;           /* maximum size of a bucket, except for a larger single gradient; 0: optimal by
                              * the cost model */
    int64_t all_reduce_bytes;/* smaller buckets are summed by the backend, in any order; others by
                              * sum_ranks */
};

/* The pass, of a program of one of several ranks: gradients become parts of buckets, each of which is
 * exchanged as soon as it is full, and what the update reads are parts of the sums. After all passes that
 * make gradients of parameters, before those of memory. */
void buckets(struct program *program, const struct bucket_options *options);
