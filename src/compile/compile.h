/* compile.h: the compiler: turns a graph into a program that fits into memory, with the passes of
 * passes.h. */
#pragma once

#include "compile/passes.h"
#include "compile/plan.h"

/* Lowers, differentiates, runs the passes, and makes a training step fit into options->limit. Where nothing
 * fits, the program is the smallest that was found: the caller checks. The caller frees it with program_free.
 * Neither limit nor fit mode changes the bits that are computed. */
enum status compile(const struct graph *graph, const struct compile_options *options,
                    struct program *program);

/* The same with kernel plans, workspaces and places: all that is known before anything runs. */
struct compiled {
    struct program program;
    struct kernel_plans kernel_plans;
    struct plan plan;
};
enum status compile_plan(const struct graph *graph, const struct compile_options *options,
                         struct compiled *compiled);
void compiled_free(struct compiled *compiled);      /* accepts a zeroed struct */
