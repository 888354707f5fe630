/* passes.h: the options of the compiler, and its passes in the order in which they run. */
#pragma once

#include "compile/parallel/buckets.h"
#include "compile/parallel/cut.h"
#include "compile/lower/lower.h"
#include "compile/memory/budget.h"
#include "compile/memory/offload.h"
#include "compile/memory/recompute.h"
#include "compile/rewrite/rewrites.h"

/* Called after every pass, but not while fit_memory tries choices on copies. */
typedef void pass_observer(const char *pass, const struct program *program, void *context);

/* How a training step meets a limit; without one, keep recomputes what is cheap, and offload moves what
 * computation hides. */
enum fit_mode {
    FIT_AUTO,                /* everything is kept if it fits, otherwise as recompute */
    FIT_KEEP,                /* products of weights are kept */
    FIT_RECOMPUTE,
    FIT_OFFLOAD,             /* moved to the host as far as computation hides it, the rest recomputed */
};

struct compile_options {
    struct lower_options lower;
    struct kernel_options kernel_plans;
    struct cut_options cut;
    struct bucket_options buckets;
    int streams;             /* for computation: 2 per chain, or 1 for sequential execution */
    enum stream_division stream_division;
    enum fit_mode fit;       /* of a training step */
    bool fit_any;            /* any choice that fits will do, however slow: it is found sooner;
                              * whatever fits with it also fits without it */
    struct budget budget;    /* of a training step, without its program */
    bool verify_each;        /* for tests: every pass leaves a program that can be planned and verified */
    pass_observer *after;    /* may be NULL */
    void *context;           /* of `after` */
};

/* How a step saves memory: the only input of passes that depends on a limit. */
struct memory_choice {
    enum recompute_mode *modes;  /* by instruction of the step as passes_lower leaves it; NULL: none */
    int64_t fuse_limit;          /* limit of fuse_recompute */
    bool offloads;               /* True if to offload ... */
    struct offload_options offload;
    int streams;
    int64_t stream_limit;        /* of streams_within; 0: none */
};

/* How many instructions show that a program went through a pass, and how many that it did not: where it had
 * nothing to do, both are 0. */
struct traces {
    int done, left;
};
typedef struct traces pass_traces(const struct program *program);

/* A pass, and the condition under which it runs; NULL: always. */
struct pass_input {
    const struct graph *graph;
    const struct compile_options *options;
    const struct memory_choice *choice;
};
struct pass {
    const char *name;
    enum status (*run)(const struct pass_input *input, struct program *program);   /* or RULES */
    pass_traces *traces;     /* NULL: it leaves none that are sure */
    bool (*condition)(const struct pass_input *input);
    const char *when;        /* the condition, in words */
    const char *after;       /* passes that it comes after, separated by spaces */
    const char *keeps;       /* the property of a program that it keeps, in words */
};

#define RULES NULL           /* it applies the rules (rewrite/rule.h) that have its name */

/* Runs a pass, or one of its rules, without asking for the condition. */
enum status pass_run(const struct pass *pass, const char *name, const struct pass_input *input,
                     struct program *program);

/* True if the program went through what pass `number` comes after, and through none that comes after it:
 * what compile() gives, and a program in text may not. The reason names the other pass. Rules can be tried on
 * any program. */
bool pass_is_next(int number, const struct pass_input *input, const struct program *program,
                  struct reason *reason);

/* The table, in order. */
const struct pass *passes_table(int *count);

/* Fuses a copy of the graph, which the program owns, and takes it through the passes that fix kernels, dtypes
 * and fusions: bits do not depend on any later one. The caller frees the program. USAGE when the batch is not
 * divisible by the micro-batches, NO_DEVICE when its size is absurd. */
enum status passes_lower(const struct graph *graph, const struct compile_options *options,
                         struct program *program);

/* The passes after these, which decide what lies in memory when. The program stays the caller's to free. */
enum status passes_memory(const struct compile_options *options, const struct memory_choice *choice,
                          struct program *program);
