/* recompute.h: which activations are kept from forward to backward, and which are recomputed. */
#pragma once

#include "compile/program.h"

/* How backward gets a value that a forward instruction writes. */
enum recompute_mode {
    RECOMPUTE_NEVER,     /* it is kept */
    RECOMPUTE_ONCE,      /* it is recomputed before its first use in backward and then kept */
    RECOMPUTE_EACH,      /* ... and recomputed for other recomputations, it is freed after them */
};

/* A step as it would be with some activations recomputed: the program's instructions in order, and before
 * those that read them the recomputing ones. */
struct recompute_walk {
    const struct program *program;
    const enum recompute_mode *modes;   /* by instruction */
    int *producer;               /* by value: the forward instruction that writes it; -1 */
    int *wanted, *wanted_first;  /* by instruction, from wanted[wanted_first[i]] to that of the next: values
                                    that have a producer and backward reads */
    int first, end;              /* instructions of the walk; all of them */
    int *now;                    /* by value: what was made of it last; -1: nothing */
    int *chain, chain_count;     /* values made for the instruction to come */
    int *stays, stay_count;      /* values made to stay */
    int value_count;             /* the program's and those made so far */
    /* Instruction `i` comes next, unchanged or recomputed; now[] is what it should read and, if recomputed,
     * write; sums and workspace, if any, are the last two values. */
    void (*next)(void *context, int i, bool recomputed);
    void *context;
};
struct recompute_walk recompute_walk_open(const struct program *program);
void recompute_walk(struct recompute_walk *walk);
void recompute_walk_close(struct recompute_walk *walk);

/* Strategy keep: normalised activations that only weight gradients read, which batch norm recomputes from its
 * input, which its own backward needs anyway. modes[program->count]. */
void recompute_cheap(const struct program *program, enum recompute_mode *modes);

/* The requirements of a choice: the cheapest whose live bytes stay within `limit`, by modelled seconds. */
struct recompute_goal {
    int64_t limit;
    bool light;              /* products of weights are kept */
    bool any;                /* the first one found is enough, not the cheapest */
    int64_t work;            /* number of replayed instructions after which the search stops */
};
#define RECOMPUTE_WORK 20000000
struct recompute_forecast {
    double seconds;          /* of recomputation, on a GPU as it is modelled */
    int64_t bytes;           /* the most alive at once, on one stream */
    int64_t work;            /* instructions replayed by the search, at some 15 ns each */
};
/* False: nothing that was tried fits; modes[program->count] is then the smallest found. Deterministic. */
bool recompute_choose(const struct program *program, const struct recompute_goal *goal,
                      enum recompute_mode *modes, struct recompute_forecast *forecast);
/* The same figures for any choice. */
void recompute_measure(const struct program *program, const enum recompute_mode *modes,
                       struct recompute_forecast *forecast);

/* A choice of the first micro-batch, by the activations of its forward in order; how many those are. And the
 * same choice for every micro-batch of a program, which may be another, with as many activations. */
int recompute_fold(const struct program *program, const enum recompute_mode *modes,
                   enum recompute_mode *folded);
void recompute_unfold(const struct program *program, const enum recompute_mode *folded,
                      enum recompute_mode *modes);

/* The pass: inserts the instructions that recompute activations. Bits do not change. Before streams. */
void recompute(struct program *program, const enum recompute_mode *modes);

/* The pass after it, before streams: activations that an op's backward can recompute itself are left to it,
 * where no more than `limit` is live at once then. */
void fuse_recompute(struct program *program, int64_t limit);
/* Whether it may come to that for what a forward instruction writes. */
bool fuse_recompute_may(const struct instruction *forward);

/* How many of its instructions recompute something. */
int recompute_count(const struct program *program);
