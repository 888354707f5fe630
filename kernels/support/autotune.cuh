/* autotune.cuh: the autotuner: finds the fastest kernel plan for a problem on this device.
 *
 * A problem is one phase of a layer with its shapes. Candidates are identified by a name, one line of text
 * from which their kernel plan is made. Choices are cached twice: in the device's cache, which is saved in
 * checkpoints, and in the file of device/cuda_tuning.h.
 *
 * In deterministic mode the file is not read. Only those are timed which compute the bits of the first one in
 * the list, so that the choice changes no result; results that are too few to compare come from the first. */
#pragma once

#include "kernels/support/cuda.cuh"
#include "kernels/op.h"

#define CANDIDATE_NAME 240               /* bytes */

/* As op_variant_is; NULL is no words. */
static inline bool candidate_is(const char *name, const char *words)
{
    return !words || op_variant_is(name, words);
}

/* An op's functions for the autotuner. `problem` is the op's own. */
struct autotune_functions {
    /* Names of candidates, the most promising first; how many. */
    int (*candidates)(const void *problem, int most, char names[][CANDIDATE_NAME]);
    const char *fallback;                /* the one to use if none of them can be made */
    /* NULL if there is no such plan; *workspace is the size that its calls need, in bytes. */
    void *(*plan_make)(const void *problem, const char *name, size_t *workspace);
    void (*plan_free)(void *plan);
    /* Queues a call on call->stream. Errors of libraries are not reported. */
    enum status (*plan_try)(const void *problem, void *plan, const struct call *call);
};

struct autotune_problem {
    const struct autotune_functions *functions;
    const void *self;                    /* the functions' `problem` */
    struct device *device;
    const char *key;                     /* GPU, libraries and problem, one line without '=' */
    const char *only;                    /* candidates whose name begins with these words; NULL: all */
    bool timed;                          /* of those the fastest; else the first that works */
    bool deterministic;
    /* Bytes that every candidate may request; if all request more, the smallest such number. */
    size_t workspace_limit;
    /* The calls to be timed. */
    enum phase phase;
    enum dtype dtype;
    struct shape x, y, weight;           /* weight.dim[0] is the bias's length */
    bool bias, sums, joins;
};

/* The plan that was chosen; NULL if `only` excludes all. Memory for timing comes from
 * device_allocate_within: if that is short, candidates that need the most are not timed; if there is none, no
 * candidate is, and the order of the list decides. Any thread that has selected the device. */
enum status autotune(const struct autotune_problem *problem, void **plan);
