/* optimizer.h: from gradients to new parameters: unscale, check, clip, update, average, rescale.
 *
 * The sequence of one update, the same on every device:
 *   1. gradients are divided by the loss scale; if one is not finite the step is skipped: nothing
 *      but the scaler's state changes;
 *   2. the global norm is taken (over trained parameters, unscaled, before clipping);
 *   3. gradients are multiplied by min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_;
 *   4. the optimizer updates fp32 masters and its own state;
 *   5. averaged weights follow: ema = decay * ema + (1 - decay) * master;
 *   6. the low-precision copy is written;
 *   7. the loss scale grows, or backs off. */
#ifndef KERNELS_OPTIMIZER_H
#define KERNELS_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "amp/scaler.h"
#include "base/dtype.h"
#include "base/field.h"

#define OPTIMIZER_MAX_SLOTS 3

/* Numbers of an update; what they mean is torch's (lars: You et al. 2017; lamb: You et al. 2020). */
struct optimizer_settings {
    double momentum;
    bool nesterov;
    double weight_decay;
    double beta1, beta2;
    double alpha;              /* rmsprop's smoothing */
    double eps;
    double trust;              /* lars' coefficient */
    double clip_norm;          /* 0: none */
    double ema;                /* decay; 0: none */
};

/* One parameter as the update sees it. Gradients are fp32, scaled by the loss scale. */
struct optimizer_param {
    int64_t count;
    float *master;
    const float *gradient;
    float *slots[OPTIMIZER_MAX_SLOTS];   /* zero before the first update */
    float *average;                      /* EMA, or NULL */
    void *low;                           /* copy in `low_dtype`, or NULL */
    enum dtype low_dtype;
    bool decay;                          /* weight decay applies to it */
    bool adapt;                          /* LARS/LAMB trust ratio applies */
};

/* What travels from step to step, in the store, so that a device can keep it. */
struct optimizer_state {
    struct scaler scaler;
    int64_t updates;           /* applied updates so far */
    int64_t step;              /* batches so far, skipped ones too */
    float grad_norm;           /* of the last step: unscaled, before clipping; not finite if it overflowed */
    int32_t skipped;           /* 1 if the last step was skipped */
    int64_t skipped_steps;     /* in all */
    float lr, momentum;        /* used by the last update */
};

struct optimizer {
    const char *name;
    const char *help;
    bool momentum_is_beta1;    /* adam's family: the `momentum` of an update takes the place of beta1 */
    bool has_nesterov;         /* heeds settings.nesterov */
    int slots;                 /* fp32 values kept per parameter element */
    const char *slot_names[OPTIMIZER_MAX_SLOTS];  /* torch's: "momentum_buffer", "exp_avg", ... */
    struct optimizer_settings initial;            /* torch's defaults for this optimizer */
    /* Updates `param` in place given the factor that unscales and clips its gradient. `t` is the
     * number of this update, from 1. `momentum` is the decay of the gradients' running mean, beta1
     * where momentum_is_beta1: a schedule moves it, so settings' own are not read here. */
    void (*update)(const struct optimizer_settings *settings, const struct optimizer_param *param,
                   double lr, double momentum, float factor, int64_t t);
    /* The same in plain loops and double arithmetic: the specification. */
    void (*reference)(const struct optimizer_settings *settings, const struct optimizer_param *param,
                      double lr, double momentum, float factor, int64_t t);
};

extern const struct optimizer *const optimizer_table[];   /* ended by NULL */
const struct optimizer *optimizer_find(const char *name);

/* The `momentum` of every update where the schedule does not move it. */
double optimizer_momentum(const struct optimizer *optimizer, const struct optimizer_settings *settings);

/* How parameters are updated; lr and momentum are for update number state->updates + 1. */
struct optimizer_options {
    const struct optimizer *optimizer;
    const struct optimizer_settings *settings;
    const struct scaler_settings *scaling;
    double lr, momentum;
};

/* The whole sequence above on the CPU. state->step is the caller's to count. Bit-equal for any number of
 * threads. */
void optimizer_step(const struct optimizer_options *options, const struct optimizer_param *params, int count,
                    struct optimizer_state *state);

#endif
