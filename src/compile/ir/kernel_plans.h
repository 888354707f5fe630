/* kernel_plans.h: which code of each op a program runs, with which algorithm and workspace. */
#pragma once

#include "compile/ir/program.h"
#include "kernels/algorithm.h"

/* An op's code on some kind of device; NULL: there is none. */
typedef const struct op_code *code_lookup(const struct op *op);

/* The code of ops on a device, and what it follows. */
struct kernel_options {
    code_lookup *code_of;
    struct device *device;             /* NULL: planned for without one at hand */
    bool tf32, deterministic;          /* as in struct call */
    const struct op *forced;           /* an op whose code uses `variant`, as in struct call; NULL: none */
    const char *variant;
};
/* The lookup for a kind of device. */
code_lookup *kernel_plans_code(enum device_kind kind);

/* Kernel plans, by instructions' numbers and phases, prepared and released together. */
struct kernel_plans {
    int count;
    struct kernel_plan **plan;
    struct kernel_options options;
};
/* Returns the kernel plan of an instruction; NULL: its code has no algorithms. */
struct kernel_plan *kernel_plans_of(const struct kernel_plans *kernel_plans, const struct instruction *at);
/* Prepares every kernel plan and gives every instruction the workspace that it asks for, as a value of
 * its own. Before planning; may be done again, for other code, before another plan. NO_DEVICE when an op
 * has no code there. */
enum status kernel_plans_prepare(struct program *program, const struct kernel_options *options,
                                 struct kernel_plans *kernel_plans);
/* Asks for the workspaces anew, when a pass has made other instructions with the same kernel plans. */
void kernel_plans_set_workspaces(const struct kernel_plans *kernel_plans, struct program *program);
/* Tells plans for the CPU that weights do not change any more (kernels/conv/conv.h). */
void kernel_plans_keep_weights(struct kernel_plans *kernel_plans);
void kernel_plans_release(struct kernel_plans *kernel_plans);
