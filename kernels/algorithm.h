/* algorithm.h: an op's algorithms, and kernel plans, which they make for calls. */
#pragma once

#include "base/text.h"
#include "kernels/op.h"

#define PLAN_NAME 240                    /* bytes */

/* The algorithm of one call, with what that needs to run it: library primitives, the sizes of blocks. */
struct kernel_plan {
    const struct algorithm *algorithm;   /* NULL: planned without a device, for its workspace alone */
    char name[PLAN_NAME];                /* the algorithm's, and words from which the plan can be made anew */
    size_t workspace;                    /* bytes */
    unsigned epilogues;                  /* bits of those that `run` does itself (CUDA: epilogues.cuh) */
    bool trusted;                        /* it is known to run, so failures are reported */
    void *state;                         /* the algorithm's own */
};

struct algorithm {
    const char *name;                    /* one word */
    /* True if it may run such a call: host code, of shapes and device facts. NULL: any. */
    bool (*supports)(const struct call *call);
    /* Names of plans worth trying, the most promising first; how many. Those that begin with call->variant
     * count alone. NULL: one, with the algorithm's name. */
    int (*candidates)(const struct call *call, int most, char names[][PLAN_NAME]);
    /* Completes a plan that has its name; false if there is none. Where nothing is timed, also if others are
     * faster and call->variant is NULL. */
    bool (*make)(const struct call *call, struct kernel_plan *plan);
    /* Runs the call, or queues it; NULL: the reference does. */
    enum status (*run)(const struct call *call, const struct kernel_plan *plan);
    void (*release)(struct kernel_plan *plan);   /* NULL: free(plan->state) */
    /* The instructions that it needs and this CPU does not have; NULL: none. The slot may be, too. */
    const char *(*lacks)(void);
};

/* The op's reference, as the last row of a list. */
extern const struct algorithm algorithm_reference;

/* The plan of that name; NULL if there is none. */
struct kernel_plan *algorithm_plan(const struct algorithm *const *algorithms, const struct call *call,
                                   const char *name);

/* Chooses a plan for a call of code that has algorithms: op_code.choose, or the first that can be made. */
enum status kernel_plan_make(const struct op_code *code, const struct call *call, struct kernel_plan **made);
void kernel_plan_free(struct kernel_plan *plan);

/* A plan without an algorithm, for a call that is planned without a device. */
struct kernel_plan *kernel_plan_bound(size_t workspace);

/* The phases' functions of code that has algorithms. */
enum status kernel_plan_run(const struct call *call);

/* Bytes of scratch memory for a call, whose kernel plan is set. */
size_t op_code_workspace(const struct op_code *code, const struct call *call);

/* Returns the name of instructions that a variant needs and this processor lacks ("AMX"); NULL: none. */
const char *algorithm_lacks(const struct op_code *code, const char *variant);

/* The tensors of a call that its phase reads or writes; they lie in the call and its lists. */
#define CALL_TENSORS (2 * OP_MAX_INPUTS + 2 * OP_MAX_PARAMS + OP_MAX_SAVED + 2 + CALL_MAX_OPERANDS)
struct call_tensor {
    enum operand_role role;
    int index;
    bool reads;
    struct tensor *tensor;
};
int call_tensors(struct call *call, struct call_tensor tensors[CALL_TENSORS]);

/* Appends the call as text, as a program's is, with the types and shapes of those tensors: "forward conv
 * filters:64 kernel:3 (x fp16[256x56x56x64], ...) then relu", without '='. */
void call_print(const struct call *call, struct text *out);
