/* recompute.h: which activations are kept from forward to backward, and which are recomputed. */
#pragma once

#include "compile/ir/program.h"

/* How backward gets a value that a forward instruction writes. */
enum recompute_mode {
    RECOMPUTE_NEVER,     /* it is kept */
    RECOMPUTE_ONCE,      /* it is recomputed before its first use in backward and then kept */
    RECOMPUTE_EACH,      /* ... and recomputed for other recomputations, it is freed after them */
};

/* Enumerates a step in which some activations are recomputed: the program's instructions in order, each
 * preceded by the recomputation of what it reads. */
struct recompute_walk {
    const struct program *program;
    const enum recompute_mode *modes;   /* by instruction */
    int *producer;               /* by value: the forward instruction that writes it; -1 */
    int *wanted, *wanted_first;  /* by instruction, from wanted[wanted_first[i]] to that of the next: values
                                    with a producer that the instruction reads in backward */
    int first, end;              /* instructions of the walk; all of them */
    int *now;                    /* by value: its latest copy; -1: none */
    int *chain, chain_count;     /* values recomputed for the next instruction */
    int *stays, stay_count;      /* values that stay until their last use */
    struct recompute_again *again;   /* by instruction */
    int *again_values, again_count;
    int value_count;             /* of the program, and those added so far */
    /* Called for each instruction, original or recomputed: now[] has the values to read and, if recomputed,
     * to write; sums and workspace, if any, are the last two values. */
    void (*next)(void *context, int i, bool recomputed);
    void *context;
};
struct recompute_walk recompute_walk_open(const struct program *program);
void recompute_walk(struct recompute_walk *walk);
void recompute_walk_close(struct recompute_walk *walk);

/* The values of a forward instruction that runs again, in again_values from `first` on: those that it reads,
 * and those that it makes. `others`: how many more it makes, which nothing reads. All are 0 if it cannot run
 * again. */
struct recompute_again {
    int first, reads, made, others;
};
static inline const int *recompute_reads_of(const struct recompute_walk *walk, int i)
{
    return walk->again_values + walk->again[i].first;
}
static inline const int *recompute_made_of(const struct recompute_walk *walk, int i)
{
    return recompute_reads_of(walk, i) + walk->again[i].reads;
}

/* Strategy keep: outputs of norms and of GELU that only weight gradients read; they are recomputed from their
 * input, which backward reads anyway. modes[program->count]. */
void recompute_cheap(const struct program *program, enum recompute_mode *modes);

/* The requirements of a choice: the fewest modelled seconds with live bytes within `limit`. */
struct recompute_goal {
    int64_t limit;
    bool light;              /* outputs of ops with weights are kept */
    bool any;                /* the first one found will do */
    int64_t work;            /* limit of the search, in replayed instructions */
};
#define RECOMPUTE_WORK 20000000
struct recompute_forecast {
    double seconds;          /* of recomputation, on the modelled GPU */
    int64_t bytes;           /* the most alive at once, on one stream */
    int64_t work;            /* instructions replayed by the search, of about 15 ns each */
};
/* False: no choice fits; modes[program->count] then has the one with the smallest peak. Deterministic. */
bool recompute_choose(const struct program *program, const struct recompute_goal *goal,
                      enum recompute_mode *modes, struct recompute_forecast *forecast);
/* Computes the forecast of any choice. */
void recompute_measure(const struct program *program, const enum recompute_mode *modes,
                       struct recompute_forecast *forecast);

/* recompute_fold takes the modes of the first micro-batch's activations, in the order of forward, and returns
 * their number. recompute_unfold applies them to every micro-batch of a program with as many activations. */
int recompute_fold(const struct program *program, const enum recompute_mode *modes,
                   enum recompute_mode *folded);
void recompute_unfold(const struct program *program, const enum recompute_mode *folded,
                      enum recompute_mode *modes);

/* The pass: inserts the instructions that recompute activations. Bits do not change. Before streams. */
void recompute(struct program *program, const enum recompute_mode *modes);

/* The pass after it, before streams: activations that an op's backward can recompute itself are left to it,
 * if live bytes stay within `limit`. */
void fuse_recompute(struct program *program, int64_t limit);
/* True if that is possible for the output of a forward instruction, which writes no other one. */
bool fuse_recompute_may(const struct instruction *forward);

/* The number of instructions that recompute an activation. */
int recompute_count(const struct program *program);
