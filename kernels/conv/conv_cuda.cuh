/* conv_cuda.cuh: one phase of a convolution on CUDA as a problem, and the algorithms that solve it.
 *
 * The autotuner (autotune.cuh) keeps the fastest of the candidates that the algorithms below list. */
#pragma once

#include "kernels/support/autotune.cuh"

extern "C" {
#include "kernels/conv/conv.h"
}

/* y[n, out, k] from x[n, in, c] and weight[k, kernel, c / groups]; [0] is along h, [1] along w. */
struct conv_problem {
    enum phase phase;
    enum dtype dtype;                        /* of x, y, and the weights and bias that forward reads */
    bool bias;                               /* forward adds one */
    bool relu;                               /* forward ends in one */
    bool sums;                               /* forward is asked for moments of y */
    bool joins;                              /* another gradient is added to that of x */
    bool picks;                              /* that has every second pixel in both directions */
    bool clips;                              /* x stands for relu6 of it */
    bool tf32, deterministic;
    int n, c, k, groups;
    int in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
};

/* Patches side by side, as transformers embed them: each pixel of x is read at one tap. */
static inline bool conv_is_patches(const struct conv_problem *p)
{
    bool sides = true;
    for (int i = 0; i < 2; i++)
        sides = sides && p->stride[i] == p->kernel[i] && p->pad[i] == 0 && p->dilation[i] == 1;
    return sides && p->groups == 1 && p->kernel[0] * p->kernel[1] > 1;
}

/* The operands of a phase, in device memory: a gradient takes the place of its tensor. */
struct conv_operands {
    void *x, *weight, *bias, *y;
};

static inline struct conv_operands conv_operands(const struct call *call)
{
    bool params = call->phase == PHASE_BACKWARD_PARAMS;
    const struct tensor *weights = params ? call->d_params : call->params;
    return (struct conv_operands){
        .x = call->phase == PHASE_BACKWARD_DATA ? call->d_x[0].data : call->x[0].data,
        .weight = weights[0].data,
        .bias = call->param_count > 1 ? weights[1].data : NULL,
        .y = call->phase == PHASE_FORWARD ? call->y.data : call->d_y.data,
    };
}

/* Multiplications, each with an addition. */
static inline double conv_products(const struct conv_problem *p)
{
    return (double)p->n * p->out[0] * p->out[1] * p->k * (p->c / p->groups) * p->kernel[0] * p->kernel[1];
}

/* A kernel plan. Its name is the algorithm's, and what that needs to make the plan again. */
struct conv_plan {
    const struct conv_algorithm *algorithm;
    struct conv_problem problem;
    char name[CANDIDATE_NAME];
    size_t workspace;            /* bytes */
    bool applies_relu;           /* it applies relu; else that is done afterwards */
    bool gives_sums;             /* it writes the moments; else they are computed from y */
    bool joins;                  /* it adds the other gradient; else that is done afterwards */
    bool trusted;                /* it is known to run, so failures are reported */
    void *state;                 /* the algorithm's own */
};

/* The device, and its libraries' handles for one thread and stream at a time. */
struct conv_tools {
    struct device *device;
    cudnnHandle_t cudnn;
    cublasLtHandle_t cublaslt;
    const char *only;            /* only candidates whose names begin with these words; NULL: all */
    bool timed;                  /* of those the fastest; else the first that works */
};

struct conv_algorithm {
    const char *name;
    /* Names of plans worth timing, the most promising first; how many. */
    int (*candidates)(const struct conv_problem *problem, const struct conv_tools *tools, int most,
                      char names[][CANDIDATE_NAME]);
    /* Makes plan->state and plan->workspace from plan->name and plan->problem; false if it cannot be. */
    bool (*make)(struct conv_plan *plan, const struct conv_tools *tools);
    void (*release)(struct conv_plan *plan);
    /* Queues the phase on call->stream, which is also cuDNN's, all but the bias's gradient. */
    enum status (*run)(const struct conv_plan *plan, const struct call *call, const struct conv_tools *tools);
};

extern const struct conv_algorithm conv_by_cudnn, conv_by_product, conv_by_depthwise, conv_by_stem,
    conv_by_joined, conv_by_direct, conv_by_gemm, conv_by_gemm_per_image;

/* Small enough for tests and toys, where precision is worth more than speed: gradients of weights are not
 * rounded to 16 bits on the way, and sums are those of y as stored. */
static inline bool conv_is_small(const struct conv_problem *p)
{
    return conv_products(p) < 1e8;
}

/* y [n, h, w, c] summed over all but its channels into to[c], and with `squares` y * y into to[c..2c). */
size_t conv_sums_workspace(int64_t rows, int width, bool squares);
enum status conv_sums(const struct call *call, const struct tensor *y, float *to, bool squares);
/* Without squares, in the same workspace, of those y whose `number` is not `left_out`. */
enum status conv_sums_where(const struct call *call, const struct tensor *y, float *to,
                            const uint8_t *numbers, int left_out);

/* Copies those pixels of x that p's strides select or, in PHASE_BACKWARD_DATA, copies them back; others
 * become zero. */
enum status conv_copy_picked(const struct conv_problem *p, const struct call *call, void *picked, void *x);
/* Also adds up what is copied, in the workspace of conv_sums. */
enum status conv_sums_picked(const struct conv_problem *p, const struct call *call, void *picked,
                             const void *x, float *to);

/* columns[n, out, kernel, c]: what each pixel of y reads of x, zeros outside the image; and, as p's d_x, the
 * sums of such columns of type `columns_type` over what reads each pixel of x. One group. */
enum status conv_columns_make(const struct conv_problem *p, const struct call *call, void *columns,
                              const void *x);
enum status conv_columns_add(const struct conv_problem *p, const struct call *call, enum dtype columns_type,
                             const void *columns, void *x);

/* to[i] = the sum of shares[s * count + i], in a fixed order. */
enum status conv_sum_shares(const struct call *call, float *to, const float *shares, int share_count,
                            int count);
