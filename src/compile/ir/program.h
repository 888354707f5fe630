/* program.h: a training step or an evaluation as a flat array of instructions over tensors. */
#pragma once

#include "compile/time/machine.h"
#include "compile/parallel/pipeline_schedule.h"
#include "device/device.h"
#include "graph/graph.h"

enum value_home {
    HOME_ARENA,      /* placed by the plan */
    HOME_PART,       /* a part of the value `whole`, which the plan places: at byte `offset` of it */
    HOME_PARAM,      /* the store: `index` is the graph's parameter; `low` picks the copy */
    HOME_IMAGES,     /* the batch: images, at byte offset `offset` (micro-batches) */
    HOME_TARGETS,    /* the batch: labels */
    HOME_RESULT,     /* read by the host after the run: per-image loss, rank, logits; byte `offset` */
    HOME_FLAGS,      /* enum rank_flag, which the host has written */
    HOME_HOST,       /* host memory, offloaded; byte `offset` */
    HOME_MAIL,       /* where stage `index` writes it: byte `offset` of what it sends in a step */
};

/* The kind of a tensor, for the memory map's colours and the totals. */
enum value_kind {
    KIND_ACTIVATION, KIND_SAVED, KIND_GRADIENT, KIND_PARAM_GRADIENT, KIND_WORKSPACE, KIND_EXCHANGE, KIND_OTHER
};

/* Numbers that ranks exchange and sum in each step; as many as keep what follows aligned. */
enum rank_flag {
    FLAG_PRESENT,            /* 1: the sum is the number of ranks, or the exchange was aborted */
    FLAG_COUNT = 16
};

/* A tensor of the program. */
struct value {
    char *name;              /* "layer1.0.conv1", "d layer1.0.conv1", "d layer1.0.conv1.weight" */
    enum value_home home;
    enum value_kind kind;
    enum dtype dtype;
    struct shape shape;
    int64_t bytes;
    int node;                /* of the graph; -1: none */
    int index;               /* HOME_PARAM: the parameter; HOME_MAIL: the stage */
    bool low;                /* HOME_PARAM: the low-precision copy */
    int whole;               /* HOME_PART: the value that it is a part of */
    bool divided;            /* it has parts: an access to them is one to it, and vice versa */
    int64_t offset;          /* HOME_PART, and where results and batches lie */
};

enum instruction_kind {
    INSTRUCTION_OP,              /* one call of one op's code */
    INSTRUCTION_UPDATE,          /* the optimizer's, of all parameters */
    INSTRUCTION_MEASURE,         /* the squares of all gradients, to y, for an update that adds up x[0] */
    INSTRUCTION_COPY_TO_HOST,    /* of x[0] to y, in PHASE_FORWARD ... */
    INSTRUCTION_COPY_FROM_HOST,  /* ... and in PHASE_RECOMPUTE */
    /* Messages between a pipeline's stages, in PHASE_FORWARD and PHASE_BACKWARD, which arrive in the order
     * in which they are sent: */
    INSTRUCTION_SEND,            /* x[0] to stage `peer` */
    INSTRUCTION_RECEIVE,         /* y from stage `peer` */
    /* Collectives, of x[0] to y, in PHASE_BACKWARD, among the ranks that have a stage, or the whole
     * network; the last also among the stages that make up a network: */
    INSTRUCTION_ALL_TO_ALL,      /* part r of x[0], of as many equal ones as there are ranks, to rank r */
    INSTRUCTION_ALL_GATHER,      /* y: all ranks' x[0], in their order */
    INSTRUCTION_ALL_REDUCE,      /* y: the sum of all ranks' x[0], by the backend */
};

/* How an instruction accesses the value of an operand: a set of these; only its shape matters if it is
 * empty. */
enum access {
    ACCESS_SHAPE, ACCESS_READ = 1, ACCESS_WRITE = 2,
    ACCESS_REPEATED = 4      /* the read of a value that an operand before it reads as well */
};

/* A value and its role (kernels/call.h). */
struct operand {
    unsigned role : 6;       /* enum operand_role */
    unsigned access : 3;     /* enum access */
    unsigned index : 23;     /* of x, d_x, params, d_params, saved, of which there may be several; else 0 */
    int value;
};

/* Value ids: `to` may take the place of `from`, if that dies at the instruction; -1: no pair. */
struct in_place {
    int from, to;
};
#define IN_PLACE_PAIRS 2

/* x, params, saved and y are operands in every phase, because code needs their shapes; the update, and what
 * adds up squares for it, read gradients as d_params, and the update writes parameters as params. */
struct instruction {
    enum instruction_kind kind;
    enum phase phase;
    const struct op *op;     /* NULL for all kinds but INSTRUCTION_OP */
    const void *settings;
    int node;                /* of the graph; -1 for sums and casts and the update */
    char *name;              /* "layer1.0.conv1 backward data" */
    int micro_batch;         /* from 0 in each program */
    int peer;                /* INSTRUCTION_SEND and INSTRUCTION_RECEIVE: the other stage */
    bool among_stages;       /* INSTRUCTION_ALL_GATHER: not among ranks of one stage */
    int stream;
    int kernel_plan;         /* instructions with the same number and phase have the same one; -1: none */
    struct operand *operands;    /* by role, then by index */
    int operand_count;
    struct epilogue epilogues[CALL_MAX_EPILOGUES];   /* as in struct call */
    int epilogue_count;
    int ranks;               /* as in struct call */
    float loss_weight;
    int *waits;              /* earlier instructions on other streams that must have ended */
    int wait_count;
    int behind;              /* an earlier transfer that must have ended, so that its memory is free; -1 */
    struct in_place in_place[IN_PLACE_PAIRS];
};

struct program {
    const struct graph *graph;         /* instructions' nodes are its nodes */
    struct graph *fused;               /* the same, where the program owns it; NULL */
    struct machine machine;            /* whose rates the cost model uses */
    bool training, sync_bn;
    enum dtype wire;                   /* type in which ranks send gradients, and to which sums are rounded */
    int batch, micro_batches;          /* images a step; micro-batches */
    int first_micro_batch, all_micro_batches;   /* as in lower_options; all_micro_batches is never 0 */
    int stages, stage;                 /* of a pipeline; this program's. 1 and 0: of none */
    enum pipeline_schedule schedule;
    int *node_stages;                  /* by node; NULL: of none */
    enum dtype storage;                /* of activations */
    struct value *values;
    int value_count;
    struct instruction *instructions;
    int count;
    int streams;
    int kernel_plan_count;
    int first_backward;                /* index of the first backward instruction; count if none */
    int images, labels;                /* the whole batch */
    int loss, rank, logits;            /* HOME_RESULT values over the whole batch; logits -1 in training */
    int flags, flags_sum;              /* FLAG_COUNT numbers: this rank's, and of all; -1: no exchange */
    int64_t images_bytes, targets_bytes, results_bytes, host_bytes;
    int *gradients;                    /* by parameter: the value that update reads; -1: not trained here */
    int64_t *offsets;                   /* by value, for plan_make: offsets that were found when the program
                                          was made to fit; NULL: none */
    int offset_count;
    struct internal *internals;        /* settings of ops that lowering made, owned */
    int internal_count;
};

struct internal {
    const struct op *op;
    void *settings;
};

void program_free(struct program *program);
/* A program of its own but for the graph and the settings of internal ops, which stay the original's: not to
 * outlive it. */
struct program program_copy(const struct program *program);

/* The type in which ops read a parameter in a run that stores activations as `storage`: weights and
 * biases of LOW ops in that type, all else as its master is. */
enum dtype program_param_dtype(const struct graph *graph, int param, enum dtype storage);

/* True if training changes it by its gradient: neither a statistic nor frozen. */
bool program_param_trained(const struct parameter *param);

/* Chunks (kernels/optimizer/update.h) of the parameters before `param` that are trained, in whatever stage:
 * of all of them where it is graph->param_count. */
int64_t program_update_chunks(const struct graph *graph, int param);

/* True if there may be several operands with a role, by index. */
static inline bool operand_is_list(enum operand_role role)
{
    return operand_rows[role].kind == OPERAND_KIND_LIST;
}

/* The value of an operand; -1: there is none. */
int operand(const struct instruction *at, enum operand_role role, int index);
/* How many there are with a role, up to the last index. */
int operand_count(const struct instruction *at, enum operand_role role);

static inline int operand_x(const struct instruction *at, int index) { return operand(at, OPERAND_X, index); }
static inline int operand_y(const struct instruction *at) { return operand(at, OPERAND_Y, 0); }

static inline const struct operand *operands_end(const struct instruction *at)
{
    return at->operand_count > 0 ? at->operands + at->operand_count : at->operands;
}

static inline bool operand_is_read(const struct operand *operand)
{
    return (operand->access & (ACCESS_READ | ACCESS_REPEATED)) == ACCESS_READ;
}

/* True for sums and workspaces, which belong to one instruction, or to two, and are not recomputed. */
static inline bool operand_is_extra(const struct operand *operand)
{
    return operand_rows[operand->role].kind >= OPERAND_KIND_SUMS;
}

/* Loops over the operands of an instruction; over those whose values it reads, each value once; over those
 * that it writes. */
#define FOR_OPERANDS(o, at) \
    for (const struct operand *o = (at)->operands, *o##_end = operands_end(at); o < o##_end; o++)
#define FOR_READS(o, at) FOR_OPERANDS(o, at) if (operand_is_read(o))
#define FOR_WRITES(o, at) FOR_OPERANDS(o, at) if (o->access & ACCESS_WRITE)

bool instruction_reads(const struct instruction *at, int value);
/* The value whose place `value` may take at the instruction; -1. */
int instruction_over(const struct instruction *at, int value);
bool instruction_writes(const struct instruction *at, int value);

static inline bool instruction_is_copy(const struct instruction *at)
{
    return at->kind == INSTRUCTION_COPY_TO_HOST || at->kind == INSTRUCTION_COPY_FROM_HOST;
}

static inline bool instruction_is_collective(const struct instruction *at)
{
    return at->kind == INSTRUCTION_ALL_TO_ALL || at->kind == INSTRUCTION_ALL_GATHER ||
           at->kind == INSTRUCTION_ALL_REDUCE;
}

static inline bool instruction_is_message(const struct instruction *at)
{
    return at->kind == INSTRUCTION_SEND || at->kind == INSTRUCTION_RECEIVE;
}

/* The first message of a kind, from instruction i on, to or from stage `peer`; -1: there is none. */
int program_next_message(const struct program *program, enum instruction_kind kind, int peer, int i);

static inline bool instruction_is_backward(const struct instruction *at)
{
    return at->phase == PHASE_BACKWARD || at->phase == PHASE_BACKWARD_DATA ||
           at->phase == PHASE_BACKWARD_PARAMS;
}

/* True if it is an op's update, of running statistics; not the optimizer's. */
static inline bool instruction_is_op_update(const struct instruction *at)
{
    return at->op && at->phase == PHASE_UPDATE;
}

/* True if it is an exchange among ranks, or works on what is exchanged. */
static inline bool instruction_is_exchange(const struct program *program, const struct instruction *at)
{
    return instruction_is_collective(at) || instruction_is_message(at) ||
           (operand_y(at) >= 0 && program->values[operand_y(at)].kind == KIND_EXCHANGE);
}

/* The value that the plan places for `value`: itself, or what it is a part of. */
static inline int value_placed(const struct program *program, int value)
{
    const struct value *at = &program->values[value];
    return at->home == HOME_PART ? at->whole : value;
}

/* The call that instruction `i` is, with shapes and dtypes and no data. Pointers lead into
 * `storage`, which the caller owns and reuses. */
struct call_storage {
    struct tensor x[OP_MAX_INPUTS], d_x[OP_MAX_INPUTS];
    struct tensor params[OP_MAX_PARAMS], d_params[OP_MAX_PARAMS], saved[OP_MAX_SAVED];
};
struct call program_call(const struct program *program, int i, struct call_storage *storage);
/* The place of a call's tensor, which the call has afterwards. */
struct tensor *call_tensor(struct call *call, enum operand_role role, int index);
