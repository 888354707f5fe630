/* recompute.h: which activations are kept from forward to backward, and which are made again. */
#ifndef COMPILE_RECOMPUTE_H
#define COMPILE_RECOMPUTE_H

#include "compile/program.h"

/* How backward gets a value that a forward instruction writes. */
enum remake {
    REMAKE_NOT,      /* it is kept */
    REMAKE_ONCE,     /* it is made again before it is first wanted, and kept from there on */
    REMAKE_EACH,     /* made again for other remaking, it is not kept for backward, which has it made anew */
};

/* A step as it would be with some activations made again: the program's instructions in order, those
 * that remake put in before those that want what they make. */
struct remade {
    const struct program *program;
    const enum remake *remake;   /* by instruction */
    int *producer;               /* by value: the forward instruction that writes it; -1 */
    int *wanted, *wanted_first;  /* by instruction, from wanted[wanted_first[i]] to that of the next: values
                                    that have a producer and backward reads */
    int first;                   /* instruction with which the walk begins */
    int *now;                    /* by value: what was made of it last; -1: nothing */
    int *chain, chain_count;     /* values made for the instruction to come */
    int value_count;             /* the program's and those made so far */
    /* Instruction `i` comes next, as it is or `again`; now[] is what it should read, and, when
     * again, what it writes; sums and workspace, where it has such, are the last two values. */
    void (*next)(void *context, int i, bool again);
    void *context;
};
struct remade remade_open(const struct program *program);
void remade_walk(struct remade *remade);
void remade_close(struct remade *remade);

/* Strategy keep: normalised activations that only weight gradients read, and that batch norm makes
 * again from its input, which its own backward needs anyway. remake[program->count]. */
void recompute_cheap(const struct program *program, enum remake *remake);

/* The requirements of a choice: the cheapest whose live bytes stay within `limit`, by modelled seconds. */
struct recompute_goal {
    int64_t limit;
    bool light;              /* products of weights are kept */
    bool any;                /* not the cheapest: the first that is found will do */
    int64_t work;            /* instructions replayed, after which the search gives up */
};
#define RECOMPUTE_WORK 20000000
struct recompute_forecast {
    double seconds;          /* for making again, on a GPU as it is modelled */
    int64_t bytes;           /* the most alive at once, on one stream */
    int64_t work;            /* instructions replayed by the search, at some 15 ns each */
};
/* False: nothing that was tried fits; remake[program->count] is then the smallest found. Deterministic. */
bool recompute_choose(const struct program *program, const struct recompute_goal *goal, enum remake *remake,
                      struct recompute_forecast *forecast);
/* The same figures for any choice. */
void recompute_measure(const struct program *program, const enum remake *remake,
                       struct recompute_forecast *forecast);

/* The pass: puts the instructions in that make activations again. Bits do not change. Before streams. */
void recompute(struct program *program, const enum remake *remake);

/* The pass after it, before streams: what backward can make again by the way is left to it, where no more
 * than `limit` is alive at once then. */
void recompute_merge(struct program *program, int64_t limit);
/* Whether it may come to that for what a forward instruction writes. */
bool recompute_merges(const struct instruction *forward);

/* How many of its instructions make something again. */
int recompute_count(const struct program *program);

#endif
