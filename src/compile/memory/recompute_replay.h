/* recompute_replay.h: evaluates the time and memory of a choice of activations to recompute, without building
 * its program.
 *
 * Invariant: after replay_run, `peak` is plan_live_bytes of the program that recompute() makes of the same
 * choice, on one stream: both follow recompute_walk. No state is carried over from one run to the next.
 * Values whose lifetimes no choice can change are summed up once, by instruction; a run processes the
 * backward instructions and the recomputed ones. For this folder only. */
#pragma once

#include "compile/memory/recompute.h"

/* A value, or a recomputed copy of it. Times count instructions, recomputed ones included. */
struct replay_tensor {
    int value;
    int first, last;         /* use; -1: none */
    int head;                /* the tensor whose place it takes; itself if its own */
    int64_t bytes;
};

/* `to` may take the place of `from` if that dies at `time`. */
struct replay_in_place {
    int from, to, time;
};

struct replay {
    const struct program *program;
    int64_t limit;
    enum recompute_mode *modes;         /* by instruction: the choice, to be set before a run */
    int begin;                   /* instruction with which a run begins; it ends before walk.end */
    int micro_batch;             /* the last one of a run */
    int64_t before;              /* bytes of fixed lifetimes that begin earlier and have not ended */

    /* Results of the last run. */
    double seconds;              /* of recomputation: a multiple of REPLAY_TICK */
    double excess;               /* byte-instructions above the limit */
    int64_t peak;                /* bytes alive at once */
    int64_t work;                /* instructions replayed by all runs so far */

    double *cost;                /* by instruction, seconds */
    int64_t *extra;              /* by instruction: bytes alive during its recomputation only */
    int64_t *begins, *ends;      /* by instruction: bytes of fixed lifetimes that begin or end with it */
    struct recompute_walk walk;
    int *slot;                   /* by value: its tensor, if its lifetime depends on the choice; else -1 */
    int slot_count;
    int *uses, *uses_first;      /* by instruction: varying values that it reads or writes */

    /* The run: tensors by slot, then copies; forward_*: as forward leaves them. */
    struct replay_tensor *tensors, *forward_tensors;
    int tensor_count, tensor_room;
    struct replay_in_place *in_place;
    int in_place_count, forward_in_place_count, in_place_room;
    int *sequence;               /* by time: the instruction; ~instruction when recomputed */
    int time, sequence_room;
    int64_t *change;             /* by time: bytes alive, less those alive before; after a run, those above
                                    the limit */
    int change_room;
};

/* Costs are rounded to multiples of it, so that sums do not depend on their order. */
#define REPLAY_TICK 0x1p-44

/* `cost`: by instruction, in seconds. The choice is to keep everything. The replay must not be moved. Not
 * `whole`: of many micro-batches, runs replay the one in which most is alive when everything is kept, and the
 * one before it. The same is chosen for all, and they differ in partial sums of gradients alone. */
void replay_open(struct replay *replay, const struct program *program, const double *cost, bool whole);
/* True if what instruction i writes can be recomputed. */
bool replay_can_recompute(const struct replay *replay, int i);
void replay_run(struct replay *replay);
/* After a run: an upper bound of what recomputing the output of an instruction can take off the excess, by
 * instruction. gain[program->count]. */
void replay_gain_bounds(const struct replay *replay, double *gain);
void replay_close(struct replay *replay);
