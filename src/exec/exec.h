/* exec.h: runs a planned program on a device. */
#pragma once

#include "comm/comm.h"
#include "compile/compile.h"
#include "exec/store.h"
#include "kernels/optimizer/update.h"

struct exec_options {
    struct device *device;
    struct store *store;
    const struct store *teacher;                     /* of the parameters behind the store's; NULL: none */
    struct comm *replicas;                           /* the ranks that share its stage's batch; NULL: none */
    struct comm *stages;                             /* the stages of its replica; NULL: there is one */
    const struct optimizer *optimizer;               /* training */
    struct optimizer_settings optimizer_settings;
    struct scaler_settings scaling;
    bool decay_norm_bias;                            /* and trust ratios of lars and lamb */
    bool tf32, deterministic;                        /* as in struct call */
    int stop_at;                                     /* as in struct update */
    uint64_t seed;                                   /* dropout */
    bool results_stay;                               /* on the device, where exec_results has them */
};

struct exec;

/* The memory that an exec uses or shares. */
struct exec_memory {
    const struct exec *lender;   /* an exec that never runs at the same time: its arena is shared if it is
                                  * large enough, and so are its batches; results that stay lie behind the
                                  * tensors there if there is room; NULL: none */
    int64_t arena_least;         /* an own arena is not smaller, for others to share */
    struct text *shortage;       /* gets the message about missing device memory, which is then not reported,
                                  * because the caller may replan; NULL: it is reported */
};

/* Prepares an exec of a compiled program without memory; then allocates its memory, once. The compiled
 * program and its graph must outlive it, and so must an exec whose arena it shares. A store that no training
 * has touched gets its loss scale when memory is taken. Runs happen on the thread that opened the device,
 * whose OpenMP threads are set. NO_DEVICE when memory does not suffice. */
struct exec *exec_prepare(const struct compiled *compiled, const struct exec_options *options);
enum status exec_place(struct exec *exec, const struct exec_memory *memory);
/* Both, with a separate arena. */
enum status exec_open(const struct compiled *compiled, const struct exec_options *options,
                      struct exec **exec);
void exec_close(struct exec *exec);      /* also one that is only prepared */
const struct plan *exec_plan(const struct exec *exec);
/* Memory of that many bytes in the lender's arena, behind what the exec has there, which lasts until the
 * lender runs; NULL: there is not so much. */
void *exec_behind(const struct exec *exec, int64_t bytes);
void *exec_arena(const struct exec *exec);

/* A run over a batch in host memory laid out as the program says (images [batch,h,w,c] in program->storage;
 * labels as its value says: int32, or fp32 targets), in two parts. Training: counts a step, runs forward to
 * update; a step that is skipped changes the scaler's state and the counters only.
 *
 * start queues it; the batch must stay in place until the run is collected, or start has failed. Up to
 * exec_depth() runs may be started and not collected: 1 on the CPU, which is synchronous and reads the batch
 * in place; 2 on a GPU, which starts one when the other ends. collect waits for the oldest, which is then the
 * last run. Device errors may only be reported there.
 *
 * Averages (EMA) of running statistics follow as those of parameters do; counters are copied. */
struct exec_batch {
    const void *images;
    const void *labels;
    bool unchanged;          /* the contents are unchanged and need not be copied to the device again */
    /* On a device with separate memory: queues on `stream` the work that produces the images `to` from
     * `images`, which may have any format. NULL: they are copied. */
    enum status (*make)(void *maker, const void *images, int stream, void *to);
    void *maker;
};
int exec_depth(const struct exec *exec);
enum status exec_start(struct exec *exec, const struct exec_batch *batch, const struct update_rates *rates);
enum status exec_collect(struct exec *exec);
/* True if everything that was started has ended. */
bool exec_idle(const struct exec *exec);
/* Both, with the rates of the next update. */
enum status exec_run(struct exec *exec, const struct exec_batch *batch, double lr, double momentum);

/* Results of the last run, host memory, valid until exec_depth() more are started: loss and rank (how many
 * classes beat the true one) per image; logits [batch, classes] as fp32, or NULL. */
const float *exec_losses(const struct exec *exec);
const int32_t *exec_ranks(const struct exec *exec);
const float *exec_logits(const struct exec *exec);
/* The logits, in device memory, of the run that was started last, for work that is queued behind it. */
const float *exec_results(const struct exec *exec);
/* State after the last training run. */
const struct optimizer_state *exec_state(const struct exec *exec);

/* A value of the last run, copied to fp32 host memory; only in an exec with separate memory for each value
 * (tests, diagnosis). */
enum status exec_value(const struct exec *exec, int value, float *host);
/* Gradients of parameter `param` of the last run, unscaled, before clipping: valid in any exec. */
enum status exec_gradient(const struct exec *exec, int param, float *host);

/* Nanoseconds of each instruction in the last run, when measuring was asked for: each then waits for the
 * preceding one, so that on a GPU their sum exceeds the time of a normal run. */
void exec_measure(struct exec *exec, bool on);
const int64_t *exec_times(const struct exec *exec);
/* When each of them began, as clock_nanoseconds. */
const int64_t *exec_begins(const struct exec *exec);

/* The name of the algorithm of an instruction; NULL: its code has only one. */
const char *exec_algorithm(const struct exec *exec, int instruction);

/* Makes the next runs capture steps again; no run may be in progress. */
void exec_capture_anew(struct exec *exec);
