/* op.h: an op: the struct with everything that the rest of the program knows about it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/field.h"
#include "base/shape.h"
#include "base/status.h"
#include "base/tensor.h"

struct device;

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

/* The address of an object in builds with CUDA; otherwise NULL. */
#ifdef HAVE_CUDA
#define ON_CUDA(code) (&(code))
#else
#define ON_CUDA(code) NULL
#endif

#define OP_MAX_INPUTS 64
#define OP_MAX_PARAMS 8
#define OP_MAX_SAVED 5

/* How autocast treats an op. LOW: inputs, output and weights are stored in the run's precision,
 * products accumulate in fp32. FULL: fp32 in, fp32 out. FOLLOW: stored as its input is;
 * arithmetic inside is fp32. */
enum op_class { CLASS_FOLLOW, CLASS_LOW, CLASS_FULL };

/* Initial values; fan_in and fan_out as in torch (k, c, r, s weights). */
enum init {
    INIT_ZERO,
    INIT_ONE,
    INIT_CONSTANT,           /* init_arg */
    INIT_UNIFORM_FAN_IN,     /* U(-b, b), b = 1 / sqrt(fan_in): torch's default weights and biases;
                                `fan_in` is taken from op_param.fan_in */
    INIT_KAIMING_FAN_OUT,    /* N(0, sqrt(2 / fan_out)): He et al. 2015 */
    INIT_KAIMING_FAN_IN,     /* N(0, sqrt(2 / fan_in)) */
    INIT_NORMAL,             /* N(0, init_arg) */
    INIT_TRUNCATED_NORMAL,   /* N(0, init_arg) redrawn outside +-2 (absolute), as torch's trunc_normal_ */
    INIT_XAVIER_UNIFORM,     /* U(-b, b), b = sqrt(6 / (fan_in + fan_out)): Glorot, Bengio 2010 */
    INIT_KAIMING_UNIFORM,    /* U(-b, b), b = sqrt(6 / fan_in) */
    INIT_UNIFORM_FAN_OUT,    /* U(-b, b), b = 1 / sqrt(fan_out) */
    INIT_DIRAC,              /* torch's dirac_, in init_arg groups: filter c copies channel c; filters beyond
                              * the channels as INIT_UNIFORM_FAN_IN */
    INIT_WHITEN,             /* from the training images (session/whiten.h); INIT_UNIFORM_FAN_IN without
                              * them */
};

enum role {
    ROLE_WEIGHT,      /* decayed, trust-ratio scaled */
    ROLE_BIAS,        /* decayed only if decay_norm_bias */
    ROLE_NORM,        /* batch norm's weight and bias: likewise */
    ROLE_STATISTIC,   /* not trained: running mean and variance, counters */
};

/* One parameter of an op, in torch's shape and order. Master values are fp32 (I64 for counters). */
struct op_param {
    const char *name;      /* "weight": the last part of the full name; "": the name is the layer's */
    struct shape shape;
    enum role role;
    enum dtype dtype;      /* of the master: F32 or I64 */
    enum init init;
    double init_arg;
    int64_t fan_in, fan_out;
};

/* A tensor that forward computes and backward (or update, or the host) reads: batch statistics, pooling
 * indices. */
struct op_saved {
    const char *name;
    enum dtype dtype;
    struct shape shape;
};

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
 * Before memory exists (prepare, workspace) every tensor has its shape and dtype and data is NULL; a d_x that
 * is not needed has shape.rank == 0.
 *
 * On CUDA all data, the workspace, loss_scale, random->step and skipped are in device memory, and a call only
 * queues work on its stream: it does not allocate or wait, so that it can be captured. */
struct call {
    const void *settings;
    enum phase phase;
    bool training;
    int x_count, param_count, saved_count;
    struct tensor *x, *d_x;            /* [x_count] */
    struct tensor y, d_y;
    struct tensor d_y_more;            /* backward of code that adds_gradients: to be added to d_y; with code
                                          that adds_flat, it may have one pixel of each image, which is added
                                          to all of its pixels; may be absent */
    struct tensor d_x_more;            /* backward_data of code that joins_gradients: another gradient of
                                          x[0], to be added to d_x[0]; which is 0 where the mask, then x[0]'s,
                                          is 0, and whose sums over n, h, w are written; it may be of every
                                          second pixel in both directions, as code that picks_gradient writes
                                          it; in backward of code
                                          that adds_first_channels: a gradient with at least as many channels
                                          as x[0], the first of which are added to d_x[0]; may be absent */
    struct tensor y_recomputed;        /* with backward_recomputes (struct op): y, to be written as forward
                                          wrote it; may be absent */
    struct tensor sums;                /* F32 [2, c]: sums over n, h, w and sums of squares, which forward of
                                          code that gives_sums writes of y and takes_sums reads of x[0];
                                          backward of batchnorm has others; backward of code that takes_joined
                                          reads [1, c], those of d_y, which then is behind the activation, and
                                          the residual's gradient, too; backward of code that sums_gradient
                                          writes [c], those of d_x[0]; forward of code that takes_y_sums reads
                                          what another has written as y_sums; may be absent */
    struct tensor y_sums;              /* F32 [1, c]: sums over n, h, w of y as it is stored, which forward of
                                          code that gives_y_sums writes in training; or F32 [1 + c, c], if
                                          that also gives_gram: behind them those of the product of each two
                                          channels, where gram_fits; may be absent */
    struct tensor x_products, y_products;   /* F32 [2, c]: the sums over n, h, w of the gradient where the
                                          tensor is not 0, and those of the gradient times the tensor:
                                          backward of code that gives_products writes those of x[0], backward
                                          of code that takes_products reads those of y, which may be NaN where
                                          they are not known; may be absent */
    struct tensor mask;                /* U8 [n, h, w, c / 8]: bit i of byte k is 0 where channel 8 k + i of y
                                          is 0; forward and recompute of code that keeps_mask write it, and
                                          backward reads it instead of y; may be absent */
    struct tensor *params, *d_params;  /* [param_count]; statistics have no gradient; that of a bias may be
                                          absent in backward_params of code that spares_bias */
    struct tensor *saved;              /* [saved_count] */
    void *workspace;                   /* of the size that op_code.workspace returned for this phase */
    void *kernel_plan;                 /* the result of op_code.prepare, or NULL */
    const char *variant;               /* prepare: one of op_code.variants, which is used for the phases that
                                        * it supports; NULL: the fastest */
    bool timed;                        /* prepare: the fastest with that name; otherwise the first that
                                        * works */
    const struct op_random *random;    /* forward and backward, training */
    bool relu;                         /* forward of code that applies_relu: y is behind one */
    bool together;                     /* prepare: backward is asked for, where code backs_together */
    bool clips;                        /* code that backs_together: x[0] stands for relu6 of it, and backward
                                        * also passes d_x[0] through that relu6 and writes its sums as code
                                        * that sums_gradient does; forward and recompute of code that
                                        * clips_later: y is behind relu instead of relu6 */
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
    struct device *device;             /* NULL in prepare and workspace: planning without a device */
    void *stream;                      /* the device's stream; NULL on the CPU */
};

/* An op's code on one device. Empty slots mean: not needed. An op has either `backward`, or
 * `backward_data` with or without `backward_params` (so that the two may run on different streams); code that
 * backs_together has all three. */
struct op_code {
    bool channels_last;      /* its weights of rank 4, and their gradients, lie as k, r, s, c in memory */
    bool prepare_together;   /* prepare may run on several threads at once */
    bool adds_gradients;     /* backward heeds call->d_y_more */
    bool adds_flat;          /* ... also where that has one pixel of each image */
    bool adds_first_channels;   /* backward heeds call->d_x_more, where x is one tensor and d_y_more absent */
    bool gives_sums, takes_sums;   /* forward heeds call->sums */
    bool takes_y_sums;       /* forward heeds call->sums, of x[0] as it is stored, if y has as many pixels */
    bool (*gives_y_sums)(const void *settings);   /* whether forward heeds call->y_sums; NULL: no */
    bool takes_gram;         /* code that takes_y_sums heeds all of them */
    bool (*gives_gram)(int64_t channels);         /* whether y_sums may have the products; NULL: no */
    bool (*gives_products)(const struct call *call);   /* whether backward heeds call->x_products; NULL: no */
    bool (*takes_products)(const void *settings);      /* whether backward heeds call->y_products; NULL: no */
    bool applies_relu;       /* forward supports call->relu */
    bool keeps_mask;         /* forward and backward support call->mask, if the op masks */
    bool joins_gradients;    /* backward_data supports call->d_x_more, with mask and sums */
    bool takes_joined;       /* backward heeds call->sums */
    /* The shape that d_x[0] may have instead of that of x[0]: of the pixels alone that backward writes, which
     * are every second one in both directions. NULL: none */
    struct shape (*picks_gradient)(const void *settings, struct shape x);
    bool sums_gradient;      /* backward writes the sums of d_x[0] to call->sums */
    bool spares_bias;        /* backward_params computes no gradient of params[1] where it is absent */
    bool (*clips_later)(const void *settings);   /* whether forward, recompute heed call->clips; NULL: no */
    /* Whether it runs such calls on such a device, any at hand or NULL; NULL: all that the op accepts. */
    bool (*supports)(const struct call *call);
    /* Whether `backward` makes in one go what backward_data and backward_params do, and heeds call->clips, as
     * forward does; NULL: no. */
    bool (*backs_together)(const struct call *call);
    /* The algorithms from which this code chooses, or with which others are compared, terminated by NULL; and
     * the name of the kernel plan for the phase in call->phase, which begins with its variant's name;
     * call->kernel_plan is set. NULL: there is only one. */
    const char *const *variants;
    const char *(*plan_name)(const struct call *call);
    /* What a variant needs that this processor does not have ("AMX"); NULL: nothing. The slot may be, too. */
    const char *(*variant_lacks)(const char *variant);
    /* Chooses and creates what these shapes need (library primitives). May be called without a device. One
     * kernel plan serves all phases of a node; release frees it. */
    enum status (*prepare)(const struct call *call, void **kernel_plan);
    void (*release)(void *kernel_plan);
    /* Bytes of scratch memory for the phase in call->phase; call->kernel_plan is set. */
    size_t (*workspace)(const struct call *call);
    enum status (*forward)(const struct call *call);
    enum status (*backward)(const struct call *call);
    enum status (*backward_data)(const struct call *call);
    enum status (*backward_params)(const struct call *call);
    enum status (*update)(const struct call *call);
    /* Recomputes y, and the mask, from what forward saved. NULL: forward is run again, if the op saves
     * nothing. */
    enum status (*recompute)(const struct call *call);
};

/* Tensors that backward reads, which determine liveness. FIRST_X: of x, only x[0]. */
enum reads {
    READS_NOTHING = 0, READS_X = 1, READS_Y = 2, READS_PARAMS = 4, READS_SAVED = 8, READS_FIRST_X = 16,
};

/* A case on which tests, gradient checks and benchmarks run the op: settings as in a model file,
 * and the shapes of its inputs. The list ends with an empty row (settings NULL). */
struct op_example {
    const char *settings;       /* "filters=8 kernel=3 stride=2 pad=1" */
    int x_count;
    struct shape x[4];
};

struct op {
    const char *name;            /* as in model files: "conv" */
    const char *help;            /* one sentence for `amptrain ops` and the manual */
    size_t settings_size;
    const struct field *fields;  /* settings by name; ends with an empty row; NULL: none */
    int min_inputs, max_inputs;  /* 0: one */
    enum op_class precision;
    bool internal;               /* created by lowering or fusion; not for model files */

    /* The output's shape for these inputs, or false with a reason (settings are checked here, too). */
    bool (*shape)(const void *settings, int x_count, const struct shape *x,
                  struct shape *y, struct reason *reason);
    /* The output's dtype if it is not the input's (loss: F32). NULL: according to the class. */
    enum dtype (*output_dtype)(const void *settings, enum dtype input);
    /* Parameters in torch's order; returns how many. NULL: none. */
    int (*params)(const void *settings, int x_count, const struct shape *x,
                  struct op_param out[OP_MAX_PARAMS]);
    /* NULL: none. Asked with the training flag, since evaluation may save nothing. */
    int (*saved)(const void *settings, int x_count, const struct tensor *x, bool training,
                 struct op_saved out[OP_MAX_SAVED]);
    /* Bits of enum reads for PHASE_BACKWARD, BACKWARD_DATA, BACKWARD_PARAMS or, of an op with `recompute`,
     * RECOMPUTE, which reads parameters and saved tensors in any case, and all of x or nothing of it. NULL:
     * nothing. */
    unsigned (*reads)(const void *settings, enum phase phase);
    /* Whether forward may write y over x[0], and backward d_x[0] over d_y, if those are not used afterwards.
     * The bits must be the same as with separate memory. NULL: neither. */
    bool (*in_place)(const void *settings, enum phase phase, int x_count, const struct shape *x);
    /* Whether backward only needs to know which elements of y are 0, and a mask of whole bytes is much
     * smaller than y. NULL: no. */
    bool (*masks)(const void *settings, const struct tensor *x);
    /* Multiply-adds of forward beside those of weights. NULL: none are counted. */
    double (*macs)(const void *settings, const struct shape *x);
    bool training_only;          /* in evaluation y is x[0]: settings do not change what weights mean */
    /* Backward of all its codes supports call->y_recomputed, if x is one tensor. */
    bool backward_recomputes;
    /* Backward's d_x[0] is the same at all pixels of an image; its codes write one of them where d_x[0] has
     * only one. */
    bool flat_gradient;
    /* Its codes may round intermediate results to the storage type: in 16 bits results differ by more than
     * their own rounding. */
    bool rounds_factors;
    /* Likewise a whole tensor, of which all that they write in fp32 is made: that differs as 16 bits do. */
    bool rounds_between;
    /* True when the gradient of every input is d_y itself, element for element in memory order (add; flatten
     * of 1x1): lowering then reuses the tensor and backward is never called. */
    bool (*passes_gradient)(const void *settings, int x_count, const struct shape *x);
    /* For code with `update`: the saved tensors with the mean and the unbiased variance of x[0] by channel,
     * which it uses. Others need not be given. */
    struct {
        int mean, variance;
    } moments;
    bool root;                   /* a loss: backward begins with it, and reads no d_y */
    /* True if input i has no gradient (labels, or the first: images). NULL: all have one. */
    bool (*no_gradient)(int input);

    const struct op_code *reference;  /* plain loops: the specification; any dtype, sums in double */
    const struct op_code *cpu;        /* NULL: the reference is fast enough */
    const struct op_code *cuda;       /* NULL: not on this device; ON_CUDA(x_cuda) */

    const struct op_example *examples;
    const struct op_example *large;   /* more examples, above the sizes at which other code is used; NULL:
                                       * none */
};

/* Every op of this build, ended by NULL: the list in ops.c. */
extern const struct op *const op_table[];
const struct op *op_find(const char *name);       /* NULL when there is none */

/* Whether the name of an algorithm or a kernel plan begins with these words. */
static inline bool op_variant_is(const char *name, const char *words)
{
    size_t length = strlen(words);
    return strncmp(name, words, length) == 0 && (name[length] == ' ' || name[length] == '\0');
}

/* The code that runs on the CPU: op->cpu, or the reference. */
static inline const struct op_code *op_cpu(const struct op *op)
{
    return op->cpu ? op->cpu : op->reference;
}

/* Parses "key=value key=value" into a settings struct of op->settings_size (defaults first). False, with the
 * reason and a suggestion, on unknown keys, bad values, or required ones missing. op_settings_free frees the
 * struct and everything that it owns. */
void *op_settings_new(const struct op *op, const char *text, struct reason *reason);
void *op_settings_copy(const struct op *op, const void *settings);
/* Appends the settings that differ from their defaults as " key=value key=value", of which op_settings_new
 * makes the same. */
void op_settings_print(const struct op *op, const void *settings, struct text *out);
void op_settings_free(const struct op *op, void *settings);
