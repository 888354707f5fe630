/* optimizer_step.h: one update: unscale, check, clip, update, average, rescale.
 *
 * The sequence of one update, the same on every device:
 *   1. gradients are divided by the loss scale; if one is not finite the step is skipped: nothing
 *      but the scaler's state changes;
 *   2. the global norm is taken (over trained parameters, unscaled, before clipping);
 *   3. gradients are multiplied by min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_;
 *   4. the optimizer updates fp32 masters and its own state;
 *   5. averaged weights follow: ema = decay * ema + (1 - decay) * master; with lookahead and a decay below 1,
 *      master = ema;
 *   6. the low-precision copy is written;
 *   7. the loss scale grows, or backs off. */
#pragma once

#include "kernels/optimizer/matrix_sharing.h"

/* How parameters are updated; lr, momentum and ema are for update number state->updates + 1. */
struct optimizer_options {
    const struct optimizer *optimizer;
    const struct optimizer_settings *settings;
    const struct scaler_settings *scaling;
    double lr, momentum, ema;
    const struct matrix_sharing *sharing;     /* NULL: this rank does all itself */
};

/* The sum of the squares of all gradients, still scaled. */
double optimizer_squares(const struct optimizer_param *params, int count);

/* The sequence above on the CPU, given those squares. The caller increments state->step. The bits do not
 * depend on the number of threads. */
enum status optimizer_step(const struct optimizer_options *options, double squares,
                           const struct optimizer_param *params, int count, struct optimizer_state *state);
