/* offload.h: activations that are kept in host memory until the backward pass. */
#pragma once

#include "compile/program.h"

struct offload_options {
    int64_t limit;           /* no more is moved than brings what is alive at once below this */
    bool hidden;             /* nothing is moved for which computing would have to wait, by modelled times */
    int64_t least;           /* bytes of what is worth moving; 0: a thousandth of what is alive at once */
};

struct offload_forecast {
    int64_t bytes;           /* the most alive at once on the device, on one stream */
    int64_t moved;           /* in host memory */
    int count;               /* tensors */
    double seconds;          /* that computing waits for copies, on a GPU as it is modelled */
};

/* The pass: what backward reads long after forward has done with it is copied to the host meanwhile, and back
 * in time. Those that are written first, and so wait the longest, go first. After recomputation, before
 * streams. Bits do not change. False: more stays alive than the limit. */
bool offload(struct program *program, const struct offload_options *options,
             struct offload_forecast *forecast);

/* Bytes of the program's tensors that are moved. */
int64_t offload_bytes(const struct program *program);
