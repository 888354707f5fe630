/* budget.h: the device memory of a run, by owner: what a limit allows, and what a step takes. */
#pragma once

#include "compile/ir/program.h"

struct budget {
    int64_t total;           /* the limit (0: none), or the sum of the rest */
    int64_t store;           /* parameters and optimizer state */
    int64_t input;           /* batches, losses and other results, preprocessing */
    int64_t exchange;        /* with other ranks: NCCL's buffers, messages of other stages */
    int64_t arena;           /* activations, gradients and workspaces */
    int64_t behind;          /* lies behind these, in an arena that an evaluation borrows */
    /* Added to input and exchange by a program: */
    int batches;             /* on the device at once */
    bool mail;               /* messages that are not in the arena (stage_mail.h) */
};

/* The budget of a program, by what is known before it: its batches and messages are added, and the arena gets
 * what is left of the total, which may be less than 0. */
struct budget budget_allowed(const struct budget *before, const struct program *program);

/* Returns what a program takes whose values have that many bytes; the total is the sum. */
struct budget budget_taken(const struct budget *before, const struct program *program, int64_t arena);
