/* plan.h: places every tensor of a program in one arena before anything runs. */
#pragma once

#include "base/align.h"
#include "compile/ir/program.h"

#define PLAN_ALIGNMENT 256

/* Bytes of a value in the arena. */
static inline int64_t plan_bytes(const struct value *value)
{
    return (int64_t)align_up((size_t)value->bytes, PLAN_ALIGNMENT);
}

/* A tensor's lifetime in instruction numbers, [born, dead): it ends at the first point from which every later
 * instruction is ordered (by stream or event) after all its uses. Values computed in place share a group,
 * named by its first value. */
struct lifetime {
    int born, dead;            /* born == -1: not in the arena */
    int group;                 /* the value whose address this one has; itself if alone */
};

/* lifetimes[program->value_count]. `share` false: every tensor keeps its own memory for the whole
 * program and nothing is in place (what tests compare against). */
void liveness(const struct program *program, bool share, struct lifetime *lifetimes);

struct plan {
    int value_count;
    struct lifetime *lifetimes;
    int64_t *offsets;              /* by value; -1: not in the arena; NULL: not packed */
    int64_t arena_bytes;
    int64_t live_bytes_bound;      /* largest sum over instructions of aligned bytes alive */
    int64_t workspace_bytes;       /* the largest workspace */
    int peak;                      /* the instruction at which the bound is reached */
    double seconds;                /* spent packing */
    bool separate;                 /* every tensor has its own memory (liveness without `share`) */
};

/* Lifetimes, packing (alloc/pack.h) unless the program has its offsets, and the independent check: a plan
 * that fails it is never returned (FAILED). */
enum status plan_make(const struct program *program, bool share, double seconds, struct plan *plan);
void plan_free(struct plan *plan);

/* Plans an arena of at most `room` (0: any); a program with more alive at once than that is not
 * packed, and its arena_bytes are the bound. */
enum status plan_fit(const struct program *program, int64_t room, double seconds, struct plan *plan);

/* Sums of aligned bytes alive, by instruction, without packing; the caller frees them. */
int64_t *plan_live_bytes(const struct program *program);
int64_t plan_live_peak(const struct program *program);   /* the largest of these */

/* The largest sum of one instruction's values, which are live at once: no order and no placement needs
 * less. */
int64_t plan_minimum_bytes(const struct program *program);

/* Independent verification of lifetimes: walks the program forward with the set of instructions known to have
 * ended, and finds any write over a tensor that may still be read. Shares no code with liveness(). False:
 * `reason` names tensors and instructions. */
bool plan_verify(const struct program *program, const struct plan *plan, struct reason *reason);

/* A node of the graph as a row of a table: bytes are of the whole step, over all micro-batches. */
struct plan_layer {
    int node;
    struct shape shape;        /* of the output, for one micro-batch */
    enum dtype dtype;
    int64_t activation_bytes;  /* its outputs */
    int64_t saved_bytes;       /* what forward keeps for backward besides */
    const struct op *op;       /* which may be several of the graph's, fused */
    int64_t params;            /* elements of its trained or frozen parameters, without statistics ... */
    int64_t weights;           /* ... and of those that are weights */
    bool in_place;             /* its output is computed in place */
};

/* Fills a row for each node that the program runs, in running order, into rows[graph->count];
 * returns how many. */
int plan_layers(const struct program *program, const struct plan *plan, struct plan_layer *rows);
