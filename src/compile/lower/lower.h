/* lower.h: makes a program of a graph: the first passes, and what they are told. */
#pragma once

#include "compile/ir/kernel_plans.h"
#include "compile/ir/program.h"
#include "kernels/loss/losses.h"

struct lower_options {
    int batch;               /* images a step */
    int micro_batches;       /* divides batch */
    int first_micro_batch;   /* these are numbered from here on among ... */
    int all_micro_batches;   /* ... those of all ranks, whose gradients make one step; 0: there is one rank */
    bool training;
    bool sync_bn;            /* micro-batches of the same number on all ranks are normalised together */
    enum dtype storage;      /* amp/precision.h */
    enum dtype wire;         /* of gradients among ranks */
    enum loss loss;
    double label_smoothing;  /* of ce and bce, with labels */
    int64_t fold_least;      /* least numbers of a result that fold_conv_batchnorm folds in 16 bits or tf32;
                              * 0: none is folded */
    bool soft_targets;       /* targets instead of labels, as in loss_targets.h */
    bool weighted_targets;   /* ... with weights */
    const char *pixel_loss;  /* settings of the op pixel_loss: targets are masks (data/loader/mask_targets.h),
                              * and in training each of the graph's outputs has a loss; an evaluation has
                              * neither targets nor losses. NULL: there are no masks */
    bool logits;             /* evaluation: keep logits as a result */
    bool features;           /* evaluation: the output, of any shape, is the only result, as logits */
    const char *distill;     /* settings of the op distill, for a graph with a teacher; NULL: none */
    int64_t update_workspace;   /* bytes that the optimizer's update needs */
    struct machine machine;  /* on which the program runs; without a name: machine_gpu's default */
};

/* A program without values and instructions. */
struct program lower_nothing(const struct graph *graph, const struct lower_options *options);

/* The pass that makes the program: forward alone, all of it fp32. */
enum status lower_forward(const struct graph *graph, const struct lower_options *options,
                          struct program *program);

/* The pass that adds the values that forward saves for backward; after autocast. */
void lower_saved(struct program *program);
/* How many, and which, instruction i has to save. */
int lower_saves(const struct program *program, int i, struct op_saved saved[OP_MAX_SAVED]);

/* NO_DEVICE if the program's bytes cannot be added up. */
enum status lower_check(const struct program *program);

/* The passes up to running_statistics, for tests (in passes.c): forward, loss, backward, gradient sums and
 * update, the instructions of one step, in an order that runs as it stands on one stream, with dtypes as
 * autocast decides, and folded as the code of `kernels` allows. Running statistics are updated by
 * instructions after the optimizer's, which are left out when the step is skipped. USAGE when the batch is
 * not divisible by the micro-batches, NO_DEVICE when its size is absurd. */
enum status lower(const struct graph *graph, const struct lower_options *options,
                  const struct kernel_options *kernels, struct program *program);
