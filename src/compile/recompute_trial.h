/* recompute_trial.h: what a choice of activations to make again takes, played through without making it.
 *
 * Chains, lifetimes stretched by remaking, in-place pairs and micro-batches all count as they will in the
 * program, on one stream. One choice is settled; what another takes is worked out from what differs, so those
 * that differ little are played fast. For this folder only. */
#ifndef COMPILE_RECOMPUTE_TRIAL_H
#define COMPILE_RECOMPUTE_TRIAL_H

#include "compile/recompute_lives.h"

struct trial {
    const struct program *program;
    int64_t limit;

    /* Of the choice that was played last. */
    double seconds;              /* what making again takes: a multiple of TRIAL_TICK */
    double excess;               /* byte-instructions above the limit */
    int64_t work;                /* done so far, in steps of some tens of nanoseconds */

    /* Of the settled choice. */
    int64_t peak;
    double settled_seconds, settled_excess;
    int length;                  /* instructions, those made again among them */
    int *place;                  /* by instruction: where it comes among all; of the end: their number */
    int64_t *over;               /* by place: bytes alive, less the limit */
    int64_t *begins;             /* by instruction: bytes whose life begins with it */

    double *cost;                /* by instruction, seconds */
    int64_t *extra;              /* by instruction: bytes for its call alone, when it makes something again */
    struct walk *walk;
    struct lives lives;

    /* Bytes that are alive and were not, less those that were and are not. */
    int64_t *more;               /* by place: from there on, besides that from the place before on */
    int64_t *inside;             /* the same by what is made again where that has changed: walk.agains_now */
    int64_t *gone;               /* by change: what no longer begins or ends in it before that itself */
    int first, end;              /* places between which there are such */
    int inside_room, gone_room;
};

/* Costs are rounded to multiples of it, so that sums do not depend on the order. */
#define TRIAL_TICK 0x1p-44

/* `cost`: by instruction, in seconds. The choice is to keep everything. */
struct trial trial_open(const struct program *program, const double *cost, int64_t limit);
void trial_set(struct trial *trial, int i, enum remake remake);
enum remake trial_get(const struct trial *trial, int i);
void trial_play(struct trial *trial);
/* What was played last is what choices are compared with from now on. */
void trial_settle(struct trial *trial);
void trial_close(struct trial *trial);

#endif
