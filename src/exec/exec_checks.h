/* exec_checks.h: checks of what an exec computes: where values that are not finite come from, glimpses of a
 * run's results, redundant execution, and fingerprints of the store. */
#pragma once

#include "exec/exec.h"

/* The origin of values that are not finite. */
struct exec_finding {
    struct reason what;      /* "layer3.1.conv2 forward: output contains Inf"; empty when all is finite */
    int first, last;         /* positions in the batch of the affected images, if the tensor has a part for
                              * each image; otherwise the whole micro-batch or batch; 0 and -1 if all is
                              * finite */
    bool input;              /* it was in the batch already */
};

/* Repeats the last batch, which must still be in place, with the last run's loss scale and without an update,
 * and finds the first instruction that produces a value that is not finite from finite ones. Images, targets
 * and parameters are checked first. Meant for use after a skipped step, when the parameters are those that it
 * ran with. The state is not changed. */
enum status exec_diagnose(struct exec *exec, struct exec_finding *finding);

/* Checks only the parameters. */
enum status exec_check_params(const struct exec *exec, struct exec_finding *finding);

/* Requests a glimpse of the next run's results: the first elements of its gradients, and the statistics. It
 * is copied with the run, so that it is available while another run is in progress, unlike everything else
 * here. */
void exec_glimpse_next(struct exec *exec);
/* True if the last run collected has one; true if a gradient is all zeros in it; and the first statistic that
 * is not finite, or NULL. */
bool exec_glimpsed(const struct exec *exec);
bool exec_glimpse_zero(const struct exec *exec, int param);
const char *exec_glimpse_not_finite(const struct exec *exec);

/* Sets *zero if a parameter's gradient of the last run is zero in every element; as exec_gradient. */
enum status exec_gradient_is_zero(const struct exec *exec, int param, bool *zero);

/* Repeats the last batch in the same way and finds the first layer whose output is zero for every image of
 * it: "relu2: output is zero for all images", or empty. */
enum status exec_find_silent(struct exec *exec, struct reason *finding);

/* Repeats the last batch in the same way, and hands over the values that forward makes, by their nodes'
 * names, in parts, as fp32. */
enum status exec_see_outputs(struct exec *exec,
                             void (*see)(void *context, const char *node, const float *numbers,
                                         int64_t count),
                             void *context);

/* Like exec_start, but the step is run twice from the same state, and every tensor that it writes and the
 * resulting store are compared. FAILED names the first difference; the store is then unchanged. No run may be
 * in progress. Only for training with deterministic code: exec_can_repeat. */
bool exec_can_repeat(const struct exec *exec);
enum status exec_start_redundant(struct exec *exec, const struct exec_batch *batch,
                                 const struct update_rates *rates);

/* Queues the computation of the store's fingerprint after the training run that was started last; then
 * returns that of the last run collected, 0 if there is none. Ranks whose fingerprints are equal hold the
 * same parameters, optimizer state and loss scale. */
enum status exec_take_fingerprint(struct exec *exec);
uint64_t exec_fingerprint(const struct exec *exec);
/* Computes, synchronously, the fingerprint of each tensor of the store, which are numbered from 0 and have
 * names. */
int exec_store_tensors(const struct exec *exec);
enum status exec_store_fingerprints(const struct exec *exec, uint64_t *fingerprints);
void exec_store_tensor_name(const struct exec *exec, int index, struct reason *name);
