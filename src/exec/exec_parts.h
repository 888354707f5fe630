/* exec_parts.h: the exec struct; for exec*.c and diagnose.c. */
#pragma once

#include "exec/exec.h"

#define EXEC_SLOTS 2

/* An instruction with its code and its complete call: a run only iterates over these. */
struct exec_step {
    const struct instruction *at;
    enum status (*run)(const struct call *call);
    bool waited;                         /* an instruction on another stream waits for it */
    bool with_next;                      /* an update that the next step's call does as well */
    struct call call;
    struct op_random random;
};

/* A tensor of a call in the batch, whose address changes from run to run. */
struct exec_input {
    struct tensor *tensor;
    int value;
};

/* Host memory that the device reads or writes during a run. */
struct exec_exchange {
    struct update_rates rates;
    struct optimizer_state state;        /* after the run */
    float scale;                         /* the loss scale that it multiplied by */
    _Alignas(16) float flags[FLAG_COUNT];    /* of this rank, which a kernel reads */
    float flags_sum[FLAG_COUNT];         /* of all, after the run */
    uint64_t fingerprint;                /* of the store after the run; 0: not taken */
};

/* The state of one run from its start until it is collected and read. */
struct exec_slot {
    void *images, *labels;               /* the batch in device memory; NULL where it is read in place */
    bool borrowed;                       /* those are another exec's */
    struct exec_batch batch;             /* its address in host memory */
    void *results;                       /* host memory; the exec's own where the device writes there */
    struct exec_exchange *exchange;
    struct captured *captured;           /* NULL: not yet */
    float *glimpse;                      /* host memory, glimpse_bytes; NULL: not yet, or there is none */
    bool glimpsed;                       /* the slot's run left one */
};

struct exec {
    struct exec_options options;
    struct device *device;
    const struct compiled *compiled;
    const struct program *program;       /* the compiled one */
    void *arena;
    int64_t arena_bytes;                 /* of its own; 0: shared */
    int64_t lent_bytes, lent_used;       /* of the lender's arena, and what the exec has of it; 0: its own */
    bool results_lent;                   /* results lie there, too */
    bool exchanges;                      /* other ranks reach the arena */
    void *host;                          /* offloaded values; NULL: none */
    bool pinned;                         /* it is pinned */
    char *results;                       /* where ops write them: device memory */
    float *scale;                        /* device memory: the loss scale of the run */
    struct exec_step *steps;
    struct tensor *tensors;              /* of all calls */
    int tensor_count;
    struct exec_input *inputs;
    int input_count;
    const struct update_code *update_code;
    struct update update;
    struct matrix_sharing *sharing;      /* NULL: the optimizer has no matrices */
    bool updates;                        /* update was opened */
    struct optimizer_param *params;      /* those that the update changes */
    int64_t *first_squares;              /* by those: as in struct update_squares */
    int param_count;
    struct update_average *averages;
    int average_count;
    struct exec_slot slots[EXEC_SLOTS];
    int depth;                           /* slots in use */
    int64_t started, collected;
    struct exec_slot *last;                   /* of the last run collected; NULL: none */
    bool measure;
    int64_t *times, *begins;             /* of instructions, when measuring */
    struct execution_check *check;       /* of a step that is run twice; NULL: none */
    bool glimpse_next;                   /* the next run leaves a glimpse */
};

/* Queues a glimpse (exec_checks.h) after the run that is being started; without memory for it, nothing. */
enum status glimpse_queue(struct exec *exec, struct exec_slot *slot);
size_t glimpse_bytes(const struct exec *exec);

/* Fingerprints of tensors, one after the other. */
struct execution_check {
    uint64_t *fingerprints;  /* host memory of the device's kind; NULL: they are only counted */
    int tensors;             /* so far */
    int sought;              /* one whose name is wanted; -1: none */
    struct reason name;
};

struct checked_tensor {
    const void *data;
    size_t bytes;
    int stream;
    const char *whose, *what;
};

/* Queues that the next fingerprint is that of a tensor; of what an instruction has written; of all that an
 * update writes. */
enum status check_tensor(const struct exec *exec, struct execution_check *check,
                         const struct checked_tensor *tensor);
enum status check_instruction(const struct exec *exec, int i);     /* for exec->check */
enum status check_store(const struct exec *exec, struct execution_check *check);

/* The steps, with everything in them that does not change from run to run; then the update. */
void steps_open(struct exec *exec);
enum status update_open(struct exec *exec, struct text *shortage);   /* as in struct exec_memory */

/* The addresses of the slot's images, labels or flags for ops: on the device or the host. */
const char *slot_input(const struct exec_slot *slot, enum value_home home);

/* Points the calls at the slot's batch, and what the update reads at its exchange. */
void exec_bind(struct exec *exec, const struct exec_slot *slot);

/* True if other ranks are to reach the arena. */
bool exec_shares_arena(const struct exec *exec);

/* One instruction that is not an update. */
enum status exec_step(struct exec *exec, int i);

/* The device address of a value; NULL for those in a batch if no slot is given. */
void *exec_address(const struct exec *exec, const struct exec_slot *slot, int value);

/* `count` elements of a value of the last run from element `first` on, as fp32. */
enum status exec_fetch(const struct exec *exec, int value, int64_t first, int64_t count, float *host);
