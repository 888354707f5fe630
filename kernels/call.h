/* call.h: a call of an op's code: its tensors by role, and what the code does to its result before that is
 * stored. An instruction of a program (compile/ir/program.h) is described by the same words. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tensor.h"

struct device;
struct kernel_plan;
struct op;

#define OP_MAX_INPUTS 64
#define OP_MAX_PARAMS 8
#define OP_MAX_SAVED 5
#define CALL_MAX_OPERANDS 8
#define CALL_MAX_EPILOGUES 6

enum phase {
    PHASE_FORWARD,
    PHASE_BACKWARD,         /* data and parameter gradients together */
    PHASE_BACKWARD_DATA,
    PHASE_BACKWARD_PARAMS,
    PHASE_UPDATE,           /* running statistics, after a step that was applied */
    PHASE_RECOMPUTE,        /* recomputes the bits that forward wrote */
    PHASE_COUNT,
};
extern const char *const phase_words[];   /* "backward_data"; ended by NULL */

/* The role of an operand: a row of operands.def. */
enum operand_role {
#define OPERAND(name, ...) OPERAND_##name,
#include "kernels/operands.def"
#undef OPERAND
    OPERAND_ROLES,
    OPERAND_NONE = OPERAND_ROLES
};

enum operand_kind {
    OPERAND_KIND_LIST, OPERAND_KIND_MEMBER, OPERAND_KIND_TENSOR, OPERAND_KIND_SUMS, OPERAND_KIND_SCRATCH
};
enum operand_access {
    CALL_SHAPE, CALL_READ, CALL_WRITE, CALL_ASKED, CALL_SHARED, CALL_KEPT
};

/* A row, with its columns. */
struct operand_row {
    enum operand_kind kind;
    enum operand_role gradient_of;
    enum operand_access forward, recompute, backward;
};
extern const struct operand_row operand_rows[];
extern const char *const operand_words[];    /* "d_y_addend"; ended by NULL */

/* A row of activations.def. */
enum activation {
    ACTIVATION_NONE,
#define ACTIVATION(name, ...) ACTIVATION_##name,
#include "kernels/activations.def"
#undef ACTIVATION
};
extern const char *const activation_words[];   /* "none", "leaky_relu"; ended by NULL */

/* Operations on the result of code (y; in backward and backward_data d_x[0]), in the order of the call's
 * list, before it is stored. X_RELU6 comes before all others. Activations are applied to y; an op that
 * `activates` has them in every phase, and d_y is the gradient of their result. */
enum epilogue_kind {
    EPILOGUE_X_RELU6,        /* x[0] stands for relu6 of itself */
    EPILOGUE_ADD,            /* adds the operand, which has the result's shape; or at least as many channels,
                              * the first of which it adds; or every second of its pixels in both
                              * directions */
    EPILOGUE_MULTIPLY,       /* multiplies by the operand, a mask: the result is 0 where its bit is */
#define ACTIVATION(name, ...) EPILOGUE_##name,
#include "kernels/activations.def"
#undef ACTIVATION
    EPILOGUE_D_RELU6,        /* multiplies by the derivative of relu6 at x[0] */
    EPILOGUE_SUMS,           /* writes sums of the result by channel to the operand ... */
    EPILOGUE_MOMENTS,        /* ... and of its squares */
    EPILOGUE_GRAM,           /* ... and of the products of each two channels */
    EPILOGUE_PRODUCTS,       /* ... as OPERAND_X_PRODUCTS says */
    EPILOGUE_PICK,           /* stores every second pixel in both directions, the others being 0 */
    EPILOGUE_MASK,           /* writes a bit for each number, 0 where that is 0 */
    EPILOGUE_POOL,           /* writes maxima, as OPERAND_POOLED says */
    EPILOGUE_KINDS
};
extern const char *const epilogue_words[];   /* "relu"; ended by NULL */

struct epilogue {
    uint8_t kind;            /* enum epilogue_kind */
    uint8_t operand;         /* enum operand_role; OPERAND_ROLES: it has none */
    double argument;         /* of leaky_relu: the slope; of others 0 */
};

static inline enum activation epilogue_activation(const struct epilogue *epilogue)
{
    bool activates = epilogue->kind > EPILOGUE_MULTIPLY && epilogue->kind < EPILOGUE_D_RELU6;
    return activates ? (enum activation)(epilogue->kind - EPILOGUE_MULTIPLY) : ACTIVATION_NONE;
}

/* A tensor that only some calls have. */
struct call_operand {
    enum operand_role role;
    struct tensor tensor;
};

/* The random stream of a call: dropout is a function of these and the element's index. */
struct op_random {
    uint64_t seed;
    const int64_t *step;    /* batches so far, including this one and skipped ones */
    uint32_t micro_batch;   /* within the step, of all ranks' */
    uint32_t layer;         /* node's index in the graph */
};

/* One call of an op's code. Which members are set depends on the phase:
 *   FORWARD          reads x, params; writes y, saved (with `ranks`, reads saved)
 *   BACKWARD*        reads d_y and whichever of x, y, params, saved `reads` names;
 *                    writes d_x (where data != NULL) and d_params (fp32, overwritten, never added to)
 *   UPDATE           reads the moments among saved; writes params (statistics); so do those of `also`
 *   RECOMPUTE        reads x, if `reads` says so, params, saved; writes y, mask
 * params[i].dtype is the compute type: the run's precision for weights and biases of LOW ops, fp32 otherwise.
 * Before memory exists (kernel plans, workspace) every tensor has its shape and dtype and data is NULL; a d_x
 * that is not needed has shape.rank == 0.
 *
 * On CUDA all data, the workspace, loss_scale, random->step and skipped are in device memory, and a call only
 * queues work on its stream: it does not allocate or wait, so that it can be captured. */
struct call {
    const struct op *op;
    const void *settings;
    enum phase phase;
    bool training;
    int x_count, param_count, saved_count;
    struct tensor *x, *d_x;            /* [x_count] */
    struct tensor y, d_y;
    struct tensor *params, *d_params;  /* [param_count]; statistics have no gradient; that of a bias may be
                                          absent in backward_params, where the code supports that */
    struct tensor *saved;              /* [saved_count] */
    int operand_count, epilogue_count;
    struct call_operand operands[CALL_MAX_OPERANDS];   /* the others, which only some calls have */
    struct epilogue epilogues[CALL_MAX_EPILOGUES];
    void *workspace;                   /* of the size that op_code_workspace returned */
    const struct kernel_plan *kernel_plan;   /* of code that has algorithms (algorithm.h) */
    const char *variant;               /* planning: one of op_code.variants, which is used if it supports the
                                        * call; NULL: the fastest */
    bool timed;                        /* planning: the fastest with that name; otherwise the first that
                                        * works */
    const struct op_random *random;    /* forward and backward, training */
    const float *loss_scale;           /* loss ops only: backward multiplies the gradient by it ... */
    int ranks;                         /* batchnorm: the number of ranks that share the micro-batch, whose
                                        * forward statistics and backward sums are given; 0: it is this rank's
                                        * alone */
    float loss_weight;                 /* ... and by this (1 / accumulate; the op divides by n itself) */
    const int32_t *skipped;            /* UPDATE: if this is not 0, nothing changes; NULL: the caller has
                                        * checked */
    const struct call *also;           /* UPDATE: another call of the same code in the same step, which is
                                        * done as well; NULL: none */
    bool tf32;                         /* fp32 products may round their inputs to tf32 */
    bool deterministic;                /* reproducible bits, on the same device and libraries */
    struct device *device;             /* NULL: planning without a device */
    void *stream;                      /* the device's stream; NULL on the CPU */
    void *library;                     /* planning on CUDA: a handle of cuDNN that has been borrowed for it;
                                        * NULL: the stream's */
};

/* The call's operand of a role that not every call has; NULL: it has none. */
static inline const struct tensor *call_operand(const struct call *call, enum operand_role role)
{
    for (int i = 0; i < call->operand_count; i++)
        if (call->operands[i].role == role) return &call->operands[i].tensor;
    return NULL;
}

/* The operand's data; NULL: it has none, or the call is not to be run. */
static inline void *call_data(const struct call *call, enum operand_role role)
{
    const struct tensor *tensor = call_operand(call, role);
    return tensor ? tensor->data : NULL;
}

/* Returns the operand's slot, adding an empty one. */
static inline struct tensor *call_put(struct call *call, enum operand_role role)
{
    for (int i = 0; i < call->operand_count; i++)
        if (call->operands[i].role == role) return &call->operands[i].tensor;
    struct call_operand *last = &call->operands[call->operand_count++];
    last->role = role;
    return &last->tensor;
}

static inline void call_drop(struct call *call, enum operand_role role)
{
    int kept = 0;
    for (int i = 0; i < call->operand_count; i++)
        if (call->operands[i].role != role) call->operands[kept++] = call->operands[i];
    call->operand_count = kept;
}

/* The call that writes Y_RECOMPUTED of a call of backward, and nothing else. */
static inline struct call call_that_recomputes(const struct call *backward)
{
    struct call recompute = *backward;
    recompute.phase = PHASE_RECOMPUTE;
    recompute.y = *call_operand(backward, OPERAND_Y_RECOMPUTED);
    recompute.operand_count = recompute.epilogue_count = 0;
    for (int i = 0; i < backward->epilogue_count; i++)
        if (epilogue_activation(&backward->epilogues[i]))
            recompute.epilogues[recompute.epilogue_count++] = backward->epilogues[i];
    return recompute;
}

/* The activation among its epilogues; ACTIVATION_NONE, and its argument. */
struct call_activation {
    enum activation kind;
    double slope;
};
static inline struct call_activation call_activation(const struct call *call)
{
    for (int i = 0; i < call->epilogue_count; i++) {
        enum activation kind = epilogue_activation(&call->epilogues[i]);
        if (kind) return (struct call_activation){kind, call->epilogues[i].argument};
    }
    return (struct call_activation){ACTIVATION_NONE, 0};
}

static inline const struct epilogue *call_epilogue(const struct call *call, enum epilogue_kind kind)
{
    for (int i = 0; i < call->epilogue_count; i++)
        if (call->epilogues[i].kind == kind) return &call->epilogues[i];
    return NULL;
}

/* For op_code.supports: whether the call's operands of the second group, and its epilogues, are exactly those
 * of two sets of bits; among them; or none. */
#define AS_BIT(number) (1u << (number))
static inline bool call_has_only(const struct call *call, unsigned operands, unsigned epilogues)
{
    for (int i = 0; i < call->operand_count; i++)
        if (!(operands & AS_BIT(call->operands[i].role))) return false;
    for (int i = 0; i < call->epilogue_count; i++)
        if (!(epilogues & AS_BIT(call->epilogues[i].kind))) return false;
    return true;
}

static inline bool call_has_exactly(const struct call *call, unsigned operands, unsigned epilogues)
{
    for (int i = 0; i < call->operand_count; i++) operands ^= AS_BIT(call->operands[i].role);
    for (int i = 0; i < call->epilogue_count; i++) epilogues ^= AS_BIT(call->epilogues[i].kind);
    return operands == 0 && epilogues == 0;
}

static inline bool call_is_plain(const struct call *call)
{
    return call->operand_count == 0 && call->epilogue_count == 0;
}

/* True if backward_params must not compute the bias gradient. */
static inline bool call_leaves_bias_out(const struct call *call)
{
    return call->phase == PHASE_BACKWARD_PARAMS && call->param_count > 1 && call->d_params[1].shape.rank == 0;
}

/* True if the addend of d_y has its shape, or there is none. */
static inline bool call_addend_is_whole(const struct call *call)
{
    const struct tensor *addend = call_operand(call, OPERAND_D_Y_ADDEND);
    return !addend || shape_count(addend->shape) == shape_count(call->d_y.shape);
}

/* op_code.supports of code whose backward adds two gradients; of code whose backward adds up d_x[0] ... */
static inline bool call_adds_gradients(const struct call *call)
{
    bool backward = call->phase == PHASE_BACKWARD;
    return call_has_only(call, backward ? AS_BIT(OPERAND_D_Y_ADDEND) : 0, 0) && call_addend_is_whole(call);
}

static inline bool call_sums_gradient(const struct call *call)
{
    bool backward = call->phase == PHASE_BACKWARD;
    return call_has_only(call, backward ? AS_BIT(OPERAND_D_X_SUMS) : 0, backward ? AS_BIT(EPILOGUE_SUMS) : 0);
}

/* ... of code whose forward applies relu ... */
static inline bool call_applies_relu(const struct call *call)
{
    return call_has_only(call, 0, call->phase == PHASE_FORWARD ? AS_BIT(EPILOGUE_RELU) : 0);
}

/* ... of code whose forward adds a tensor of y's shape ... */
static inline bool call_adds_residual(const struct call *call)
{
    const struct tensor *addend = call_operand(call, OPERAND_Y_ADDEND);
    if (!addend) return call_is_plain(call);
    return call->phase == PHASE_FORWARD && shape_equal(addend->shape, call->y.shape) &&
           call_has_exactly(call, AS_BIT(OPERAND_Y_ADDEND), AS_BIT(EPILOGUE_ADD));
}

/* ... of code whose backward adds another gradient of x[0], or its first channels, as it writes d_x[0]. */
static inline bool call_adds_to_gradient(const struct call *call)
{
    const struct tensor *addend = call_operand(call, OPERAND_D_X_ADDEND);
    bool fits = call->phase == PHASE_BACKWARD && addend && addend->shape.c >= call->x[0].shape.c;
    return call_has_only(call, fits ? AS_BIT(OPERAND_D_X_ADDEND) : 0, fits ? AS_BIT(EPILOGUE_ADD) : 0);
}
