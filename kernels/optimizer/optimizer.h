/* optimizer.h: the optimizers: their update rules, coefficients and state. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "amp/scaler.h"
#include "base/dtype.h"
#include "base/field.h"

#define OPTIMIZER_MAX_SLOTS 3

/* The coefficients of an update, with torch's meaning (lars: You et al. 2017; lamb: You et al. 2020;
 * lion: Chen et al. 2023; muon: Jordan et al. 2024). */
struct optimizer_settings {
    double momentum;
    bool nesterov;
    double weight_decay;
    bool decoupled_weight_decay;   /* of the weights themselves, not added to the gradient */
    double beta1, beta2;
    double alpha;              /* rmsprop's smoothing */
    double eps;
    double trust;              /* lars' coefficient */
    double clip_norm;          /* 0: none */
    double ema;                /* decay of averaged weights, at most: each update has its own; 0: none */
    bool lookahead;            /* training goes on from the average where the update's decay is below 1 */
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
    double lr_scale;                     /* factor of the update's learning rate */
    int64_t rows;                        /* muon: of the parameter as a matrix; 0: it is none */
    int alike;                           /* muon: matrices of this size that the network has, all stages' */
    float *scratch;                      /* muon: matrix_sharing.h's bytes, which all parameters share */
};

/* State that persists between steps, in the store, so that it can be on the device. */
struct optimizer_state {
    struct scaler scaler;
    int64_t updates;           /* applied updates so far */
    int64_t step;              /* batches so far, including skipped ones */
    float grad_norm;           /* of the last step: unscaled, before clipping; not finite if it overflowed */
    int32_t skipped;           /* 1 if the last step was skipped */
    int64_t skipped_steps;     /* in all */
    float lr, momentum;        /* used by the last update */
    float ema;                 /* decay of averages, used by the last update */
};

struct optimizer {
    const char *name;
    const char *help;
    bool momentum_is_beta1;    /* adam's family: the `momentum` of an update replaces beta1 */
    bool has_nesterov;         /* heeds settings.nesterov */
    bool has_matrices;         /* heeds param->rows; a matrix has the first slot only */
    int slots;                 /* fp32 values kept per parameter element */
    const char *slot_names[OPTIMIZER_MAX_SLOTS];  /* torch's: "momentum_buffer", "exp_avg", ... */
    double lr;                                    /* unless configured */
    struct optimizer_settings initial;            /* torch's defaults for it, but sgd's momentum */
    /* Updates `param` in place given the factor that unscales and clips its gradient. `t` is the number of
     * this update, from 1. `momentum` is the decay of the gradients' running mean, beta1 where
     * momentum_is_beta1: a schedule changes it, so it is not read from settings. */
    void (*update)(const struct optimizer_settings *settings, const struct optimizer_param *param,
                   double lr, double momentum, float factor, int64_t t);
    /* The specification of update: plain loops in double arithmetic. */
    void (*reference)(const struct optimizer_settings *settings, const struct optimizer_param *param,
                      double lr, double momentum, float factor, int64_t t);
};

/* sgd_optimizer, adam_optimizer, ... */
#define OPTIMIZER(name, ...) extern const struct optimizer name##_optimizer;
#include "kernels/optimizer/rules.def"
extern const struct optimizer *const optimizer_table[];   /* ended by NULL */
const struct optimizer *optimizer_find(const char *name);

/* The `momentum` of every update unless the schedule changes it. */
double optimizer_momentum(const struct optimizer *optimizer, const struct optimizer_settings *settings);
