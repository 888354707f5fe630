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
#include "kernels/call.h"

struct algorithm;
struct device;
struct kernel_plan;

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

/* The address of an object in builds with CUDA; otherwise NULL. */
#ifdef HAVE_CUDA
#define ON_CUDA(code) (&(code))
#else
#define ON_CUDA(code) NULL
#endif

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

enum param_role {
    ROLE_WEIGHT,      /* decayed, trust-ratio scaled */
    ROLE_BIAS,        /* decayed only if decay_norm_bias */
    ROLE_NORM,        /* batch norm's weight and bias: likewise */
    ROLE_STATISTIC,   /* not trained: running mean and variance, counters */
};

/* One parameter of an op, in torch's shape and order. Master values are fp32 (I64 for counters). */
struct op_param {
    const char *name;      /* "weight": the last part of the full name; "": the name is the layer's */
    struct shape shape;
    enum param_role role;
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

/* An op's code on one device. Empty slots mean: not needed. An op has either `backward`, or `backward_data`
 * with or without `backward_params` (so that the two may run on different streams); of code that has all
 * three, `backward` makes in one go what the others do, where that is supported. */
struct op_code {
    bool channels_last;      /* its weights of rank 4, and their gradients, lie as k, r, s, c in memory */
    bool plans_together;     /* kernel plans may be made on several threads at once */
    /* True if the phase in call->phase runs such a call, with these shapes, operands and epilogues, on such a
     * device, any at hand or NULL. NULL: all that the op accepts, without operands that not all calls have
     * and without epilogues. Not asked for RANK_SUMS, which all codes of batch norm support, and for
     * Y_RECOMPUTED, which those of ops that backward_recomputes do. In backward_params it may be asked
     * without the gradient of a bias, d_params[1], which code without this function does not leave out. */
    bool (*supports)(const struct call *call);
    /* The algorithms of its calls but for updates, in the order of preference, ended by NULL; their kernel
     * plans are made by `choose` (NULL: the first that supports the call), and the phases' functions are
     * kernel_plan_run. NULL: its functions need no kernel plan. */
    const struct algorithm *const *algorithms;
    enum status (*choose)(const struct op_code *code, const struct call *call, struct kernel_plan **made);
    /* Beginnings of the names of kernel plans by which users choose among them, ended by NULL. */
    const char *const *variants;
    /* Bytes of scratch memory for the phase in call->phase; call->kernel_plan is set. NULL: the plan's. */
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

static inline bool op_code_supports(const struct op_code *code, const struct call *call)
{
    if (code->supports) return code->supports(call);
    return call_is_plain(call) && !call_leaves_bias_out(call);
}

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
    /* True if forward may write y over x[0], backward d_x[0] over d_y (with backward_over_x over x[0]),
     * and (RECOMPUTE) Y_RECOMPUTED over x[0], if these are read no more, with the same bits. NULL: none. */
    bool (*in_place)(const void *settings, enum phase phase, int x_count, const struct shape *x);
    /* True if backward only needs to know which elements of y are 0, and a mask of whole bytes is much
     * smaller than y. NULL: no. */
    bool (*masks)(const void *settings, const struct tensor *x);
    /* Multiply-adds of forward beside those of weights. NULL: none are counted. */
    double (*macs)(const void *settings, const struct shape *x);
    bool products_by_input;      /* each weight is multiplied by each pixel of x, rather than of y */
    /* An activation behind it may be an epilogue of its calls in every phase, and what is added in front of
     * that their second input; backward recomputes what both need. */
    bool activates;
    bool training_only;          /* in evaluation y is x[0]: settings do not change what weights mean */
    /* Backward of all its codes writes y to Y_RECOMPUTED, if x is one tensor. */
    bool backward_recomputes;
    /* Backward's d_x[0] is the same at all pixels of an image; its codes write one of them where d_x[0] has
     * only one. */
    bool flat_gradient;
    /* Its codes may round intermediate results to the storage type: in 16 bits results differ by more than
     * their own rounding. */
    bool rounds_factors;
    /* Its codes may round a whole tensor between: all that they write in fp32 then differs as 16 bits do. */
    bool rounds_between;
    /* True when the gradient of every input is d_y itself, element for element in memory order (add; flatten
     * of 1x1): lowering then reuses the tensor and backward is never called. */
    bool (*passes_gradient)(const void *settings, int x_count, const struct shape *x);
    /* For code with `update`: the saved tensors with the mean and the unbiased variance of x[0] by channel,
     * which it uses. Others need not be given. */
    struct {
        int mean, variance;
    } moments;
    bool labels_pixels;          /* input 1 is a label of each pixel, U8; input 2 F32 */
    bool root;                   /* a loss: backward begins with it, and reads no d_y */
    bool backward_over_x;        /* see in_place */
    /* True if input i has no gradient (labels, or the first: images). NULL: all have one. */
    bool (*no_gradient)(int input);

    const struct op_code *reference;  /* plain loops: the specification; any dtype, sums in double */
    const struct op_code *cpu;        /* NULL: the reference is fast enough */
    const struct op_code *cuda;       /* NULL: not on this device; ON_CUDA(x_cuda) */
    bool (*supports_cuda)(const struct call *call);   /* op_code.supports of that, in every build */

    const struct op_example *examples;
    const struct op_example *large;   /* more examples, above the sizes at which other code is used; NULL:
                                       * none */
};

/* Every op of this build, ended by NULL: the list in ops.c. */
extern const struct op *const op_table[];
const struct op *op_find(const char *name);       /* NULL when there is none */

/* True if the name of an algorithm or a kernel plan begins with these words. */
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
