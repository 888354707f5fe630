/* recompute_trial.h: what a choice of activations to make again takes, played through without making it.
 *
 * Chains, lifetimes stretched by remaking, in-place pairs and micro-batches all count as they will in the
 * program, on one lane. For this folder only. */
#ifndef GRAPH_RECOMPUTE_TRIAL_H
#define GRAPH_RECOMPUTE_TRIAL_H

#include "graph/recompute.h"

struct trial_life;
struct trial_pair;
struct trial_step;

struct trial {
    const struct program *program;
    struct remade remade;
    const double *cost;          /* by instruction, seconds */
    int64_t limit;

    /* Answers of trial_play. */
    double seconds;              /* what making again takes */
    double excess;               /* byte-instructions above the limit */
    int64_t peak;
    int64_t work;                /* instructions played so far, in all trials */

    /* What the program's instructions do to memory, for playing them fast. */
    struct trial_step *steps;
    int *uses;                   /* values in the arena */
    bool *in_arena;              /* by value */

    struct trial_life *lives;    /* by value, those made again behind the program's */
    int life_room;
    struct trial_pair *pairs;
    int pair_count, pair_room;
    int64_t *change;             /* of live bytes, by position */
    int at, change_room;

    /* Up to the first instruction that can want something again every play is the same. */
    struct trial_life *start_lives;
    int start_pairs;
};

/* `cost` is the caller's and outlives the trial. */
struct trial trial_open(const struct program *program, const double *cost, int64_t limit);
void trial_play(struct trial *trial, const enum remake *remake);
void trial_close(struct trial *trial);

#endif
