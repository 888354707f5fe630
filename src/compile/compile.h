/* compile.h: the compiler: turns a graph into a program that fits into memory, with the passes of
 * passes.h. */
#pragma once

#include "compile/passes.h"
#include "compile/memory/plan.h"

/* Lowers, differentiates, runs the passes, and makes a training step fit into options->budget. If nothing
 * fits, the program is the smallest that was found, which the caller checks. The caller frees it with
 * program_free. Neither limit nor fit mode changes the computed bits. */
enum status compile(const struct graph *graph, const struct compile_options *options,
                    struct program *program);

/* The programs of that many ranks, one pipeline after another, by the options of the first one, which
 * divides the network for all. */
enum status compile_ranks(const struct graph *graph, const struct compile_options *options, int ranks,
                          struct program *programs);

/* A program with kernel plans, workspaces and offsets: everything that is known before execution. */
struct compiled {
    struct program program;
    struct kernel_plans kernel_plans;
    struct plan plan;
};
enum status compile_plan(const struct graph *graph, const struct compile_options *options,
                         struct compiled *compiled);
void compiled_free(struct compiled *compiled);      /* accepts a zeroed struct */
