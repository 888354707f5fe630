/* recompute_trial.h: what a choice of activations to make again takes, played through without making it.
 *
 * Chains, lifetimes stretched by remaking, in-place pairs and micro-batches all count as they will in the
 * program, on one lane. One choice is settled; what another takes is worked out from what differs, so those that
 * differ little are played fast. For this folder only. */
#ifndef GRAPH_RECOMPUTE_TRIAL_H
#define GRAPH_RECOMPUTE_TRIAL_H

#include "graph/recompute_lives.h"

struct trial_event;

struct trial {
    const struct program *program;
    int64_t limit;

    /* Of the choice that was played last. */
    double seconds;              /* what making again takes: a multiple of TRIAL_TICK */
    double excess;               /* byte-instructions above the limit */
    int64_t work;                /* instructions played so far, in all trials */

    /* Of the settled choice. */
    int64_t peak;
    double settled_seconds, settled_excess;
    int length;                  /* instructions, those made again among them */
    int *place;                  /* by instruction: where it comes among all */
    int64_t *over;               /* by place: bytes alive, less the limit */
    double *excess_before;       /* by place: the sum of what is over it up to there */
    int64_t *begins;             /* by instruction: bytes whose life begins with it */

    double *cost;                /* by instruction, seconds */
    int64_t *extra;              /* by instruction: bytes for its call alone, when it makes something again */
    struct walk *walk;
    struct lives lives;
    struct trial_event *old, *now;   /* begins and ends of lives that were, and that are instead, by time */
    int old_count, old_room, now_count, now_room;
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
