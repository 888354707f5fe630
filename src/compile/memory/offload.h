/* offload.h: activations that are kept in host memory until the backward pass. */
#pragma once

#include "compile/ir/program.h"

struct offload_options {
    int64_t limit;           /* only as much is moved as brings the live bytes below this */
    bool hidden;             /* nothing is moved for which computation would have to wait, by the cost
                              * model */
    int64_t least;           /* minimum bytes of a moved value; 0: a thousandth of the live bytes */
};

struct offload_forecast {
    int64_t bytes;           /* the peak of live bytes on the device, on one stream */
    int64_t moved;           /* in host memory */
    int count;               /* tensors */
    double seconds;          /* seconds that computation waits for copies, by the cost model */
};

/* The pass: values that backward reads long after their last use in forward are copied to the host, and back
 * in time. Those written first, which wait the longest, are moved first. After recomputation, before streams.
 * Bits do not change. False: more stays alive than the limit. */
bool offload(struct program *program, const struct offload_options *options,
             struct offload_forecast *forecast);

/* Bytes of the program's tensors that are moved. */
int64_t offload_bytes(const struct program *program);
