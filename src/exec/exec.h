/* exec.h: runs a planned program on a device. */
#pragma once

#include "comm/comm.h"
#include "compile/compile.h"
#include "exec/store.h"
#include "kernels/update.h"

struct exec_options {
    struct device *device;
    struct store *store;
    struct comm *replicas;                           /* the ranks that share its stage's batch; NULL: none */
    struct comm *stages;                             /* the stages of its replica; NULL: there is one */
    const struct optimizer *optimizer;               /* training */
    struct optimizer_settings optimizer_settings;
    struct scaler_settings scaling;
    bool decay_norm_bias;                            /* and trust ratios of lars and lamb */
    bool tf32, deterministic;                        /* as in struct call */
    int stop_at;                                     /* as in struct update */
    uint64_t seed;                                   /* dropout */
};

struct exec;

/* Where an exec's memory comes from. */
struct exec_memory {
    const struct exec *lender;   /* that never runs at the same time: its arena is shared where that is large
                                  * enough, and so are its places for batches; NULL: none */
    int64_t arena_least;         /* an own arena is not smaller, for others to share */
    struct text *shortage;       /* says what the device has no memory for, which is then not reported: the
                                  * caller may know what to do; NULL: it is reported */
};

/* An exec of a compiled program, which has no memory yet; then takes memory, once. The compiled program and
 * its graph must outlive it, and so must an exec whose arena it shares. A store that no training has touched
 * gets its loss scale when memory is taken. Runs happen on the thread that opened the device, whose OpenMP
 * threads are set. NO_DEVICE when memory does not suffice. */
struct exec *exec_prepare(const struct compiled *compiled, const struct exec_options *options);
enum status exec_place(struct exec *exec, const struct exec_memory *memory);
/* Both, with an arena of its own. */
enum status exec_open(const struct compiled *compiled, const struct exec_options *options,
                      struct exec **exec);
void exec_close(struct exec *exec);      /* also one that is only prepared */
const struct plan *exec_plan(const struct exec *exec);
void *exec_arena(const struct exec *exec);
int64_t exec_arena_bytes(const struct exec *exec);     /* of its own; 0 when it shares another's */

/* A run over a batch in host memory laid out as the program says (images [batch,h,w,c] in program->storage;
 * labels as its value says: int32, or fp32 targets), in two parts. Training: counts a step, runs forward to
 * update; a step that is skipped changes the scaler's state and the counters only.
 *
 * start queues it; the batch stays where it is until the run is collected, or start has failed. Up to
 * exec_depth() runs may be started and not collected: 1 on the CPU, which has done the work by then and read
 * the batch in place; 2 on a GPU, which begins one as it ends the other. collect waits for the oldest, which
 * is then the last run. What goes wrong on the device may only be seen there.
 *
 * Averages (EMA) of running statistics follow as those of parameters do; counters are copied. */
struct exec_batch {
    const void *images;
    const void *labels;
    bool unchanged;          /* what lies there was given before: it need not be copied to the device again */
    /* A device with memory of its own: queues on `stream` what makes the images there, `to`, out of `images`,
     * which may then be anything. NULL: they are copied as they lie. */
    enum status (*make)(void *maker, const void *images, int stream, void *to);
    void *maker;
};
int exec_depth(const struct exec *exec);
enum status exec_start(struct exec *exec, const struct exec_batch *batch, const struct update_rates *rates);
enum status exec_collect(struct exec *exec);
/* Whether the device has done all that was started. */
bool exec_idle(const struct exec *exec);
/* Both, with the rates of the next update. */
enum status exec_run(struct exec *exec, const struct exec_batch *batch, double lr, double momentum);

/* As exec_start, but the step is run twice from the same state, and every tensor that it writes and what it
 * leaves in the store are compared. FAILED names the first that differs; the store is then as before.
 * Nothing may be under way. Only for training with code that repeats to the bit: exec_can_repeat. */
bool exec_can_repeat(const struct exec *exec);
enum status exec_start_redundant(struct exec *exec, const struct exec_batch *batch,
                                 const struct update_rates *rates);

/* Queues, behind the training run that was started last, that the fingerprint of the whole store is taken;
 * then that of the last run collected, 0 if none was. Ranks whose fingerprints are equal hold the same
 * parameters, optimizer state and loss scale. */
enum status exec_take_fingerprint(struct exec *exec);
uint64_t exec_fingerprint(const struct exec *exec);
/* At once: of each tensor of the store, which have numbers from 0 on, and names. */
int exec_store_tensors(const struct exec *exec);
enum status exec_store_fingerprints(const struct exec *exec, uint64_t *fingerprints);
void exec_store_tensor_name(const struct exec *exec, int index, struct reason *name);

/* Results of the last run, host memory, valid until exec_depth() more are started: loss and rank (how many
 * classes beat the true one) per image; logits [batch, classes] as fp32, or NULL. */
const float *exec_losses(const struct exec *exec);
const int32_t *exec_ranks(const struct exec *exec);
const float *exec_logits(const struct exec *exec);
/* State after the last training run. */
const struct optimizer_state *exec_state(const struct exec *exec);

/* A value of the last run, copied to fp32 host memory; only in a separate-memory exec, where
 * nothing was overwritten (tests, diagnosis). */
enum status exec_value(const struct exec *exec, int value, float *host);
/* Gradients of parameter `param` of the last run, unscaled, before clipping: valid in any exec. */
enum status exec_gradient(const struct exec *exec, int param, float *host);

/* Where numbers that are not finite come from. */
struct exec_finding {
    struct reason what;      /* "layer3.1.conv2 forward: output contains Inf"; empty when all is finite */
    int first, last;         /* places in the batch of the images that it is in: of those that the tensor
                              * has a part for, otherwise of the whole micro-batch or batch;
                              * 0 and -1 when all is finite */
    bool input;              /* it came with the batch */
};

/* Repeats the last batch, which must still be where it was, with the last run's loss scale and
 * without an update, and finds the first instruction that makes a number that is not finite out of
 * finite ones. Images, targets and parameters are looked at first. Meant for after a skipped step, when the
 * parameters are those that it ran with. The state is not touched. */
enum status exec_diagnose(struct exec *exec, struct exec_finding *finding);

/* The same of parameters alone. */
enum status exec_check_params(const struct exec *exec, struct exec_finding *finding);

/* A glimpse of what the next run leaves in memory: the beginnings of its gradients, and the statistics. It is
 * copied with the run, so that it can be had though another run is under way: the rest here cannot. */
void exec_glimpse_next(struct exec *exec);
/* Whether the last run collected left one; then whether it shows nothing of a gradient but zeros, and the
 * first statistic that is not finite, or NULL. */
bool exec_glimpsed(const struct exec *exec);
bool exec_glimpse_zero(const struct exec *exec, int param);
const char *exec_glimpse_lost(const struct exec *exec);

/* Whether a parameter's gradient of the last run is zero in every element; as exec_gradient. */
enum status exec_gradient_is_zero(const struct exec *exec, int param, bool *zero);

/* Repeats the last batch likewise and finds the first layer whose output is zero for every image of it:
 * "relu2: output is zero for all images", or empty. */
enum status exec_find_silent(struct exec *exec, struct reason *finding);

/* Nanoseconds of each instruction in the last run, when measuring was asked for: each then waits for the one
 * before it, so that on a GPU their sum is more than the run would take. */
void exec_measure(struct exec *exec, bool on);
const int64_t *exec_times(const struct exec *exec);
/* Steps are captured anew, by the next runs; nothing may be under way. */
void exec_capture_anew(struct exec *exec);
/* When each of them began, as clock_nanoseconds. */
const int64_t *exec_begins(const struct exec *exec);

/* The name of the algorithm that runs an instruction; NULL: its code has but one. */
const char *exec_algorithm(const struct exec *exec, int instruction);
