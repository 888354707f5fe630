/* op_case.h: one op on one example with memory of its own: what tests and benchmarks of ops run. */
#pragma once

#include "kernels/algorithm.h"

/* Gradients have the shapes of what they belong to. Every tensor is an allocation of exactly its
 * size, so that a sanitizer sees a step beside it. */
struct op_case {
    const struct op *op;
    void *settings;
    bool training;
    enum dtype dtype;
    int x_count, param_count, saved_count;
    struct op_param param_info[OP_MAX_PARAMS];
    struct tensor x[OP_MAX_INPUTS], d_x[OP_MAX_INPUTS];
    struct tensor y, d_y;
    struct tensor params[OP_MAX_PARAMS], d_params[OP_MAX_PARAMS];
    struct tensor saved[OP_MAX_SAVED];
    struct tensor y_more, d_y_more, d_x_more;  /* Y_ADDEND, D_Y_ADDEND ... of calls; absent at first */
    struct tensor y_recomputed, sums, y_sums, mask, pooled, number;   /* likewise */
    enum operand_role sums_role;   /* of `sums` */
    struct tensor x_products, y_products;
    struct op_random random;
    int64_t step;
    float loss_scale;
    int32_t skipped;
    struct device *device;         /* for calls that do not run in host memory; NULL at first: they do */
    bool tf32, deterministic;      /* as in struct call */
    enum activation activation;    /* an epilogue of all calls but updates */
    bool relu, clips, sums_gradient;  /* calls have RELU; X_RELU6 and D_RELU6; SUMS in backward */
    bool together;                 /* op_case_prepare asks for backward */
    const char *variant;           /* likewise, for op_case_prepare */
};

/* Inputs, parameters, statistics and d_y are drawn from (PURPOSE_TEST, `seed`). With a seed of 0
 * all is poison, for questions about shapes, which are many, and drawing large examples is slow. Inputs without a
 * gradient hold class numbers below x[0]'s channels; what the op writes is poisoned. Storage is
 * `dtype` as the op's class says; with F64 every floating number of the case is F64. NULL, with
 * the reason, if the settings or shapes are refused. */
struct op_case *op_case_open(const struct op *op, const struct op_example *example, enum dtype dtype,
                             bool training, uint64_t seed, struct reason *reason);
void op_case_close(struct op_case *c);

/* From now on backward's calls have a second gradient to add (d_y is then d_y + d_y_more; flat: one that is
 * the same at all pixels of an image, whole or as one pixel of it), or make y again, or have poison for
 * products of x[0], or the products of y as forward has written it, and forward's have the sums of x[0], or
 * those that forward writes of y: poison. With a mask, backward does not look at y. backward_data has a
 * gradient to join, of all or every second pixel, a mask of x[0], and poison for sums; or backward has poison
 * for those of d_x[0], or a gradient with more channels than x, whose first it adds; or x[0] stands for relu6
 * of it, and becomes what a relu leaves, and backward has poison for those sums. Or forward pools y,
 * windows at odd edges, too, if `partial`, and backward's second gradient is that of the pooled. */
void op_case_add_gradient(struct op_case *c);
void op_case_add_flat(struct op_case *c, bool whole);
void op_case_recompute(struct op_case *c);
void op_case_give_products(struct op_case *c);
void op_case_take_products(struct op_case *c);
void op_case_take_sums(struct op_case *c);
void op_case_give_sums(struct op_case *c);
void op_case_give_y_sums(struct op_case *c, bool gram);
void op_case_take_y_sums(struct op_case *c);
void op_case_take_gram(struct op_case *c);
void op_case_mask(struct op_case *c);
void op_case_join(struct op_case *c, bool picked);
void op_case_sum_gradient(struct op_case *c);
void op_case_add_first_channels(struct op_case *c);
void op_case_add_residual(struct op_case *c);
void op_case_clip(struct op_case *c);
void op_case_pool(struct op_case *c, bool partial);

/* Sums by channel of a gradient where the tensor is not 0, and of the gradient times the tensor. */
void op_case_sum_products(const struct tensor *gradient, const struct tensor *of, struct tensor *sums);

/* The sums of a tensor: per channel, the sum over n, h, w and the sum of squares. */
void op_case_sum(const struct tensor *of, struct tensor *sums);

/* Every byte 0xff: NaN in every floating type. */
void op_case_poison(const struct tensor *tensor);

/* The code's function for a phase of every call, or NULL. */
enum status (*op_case_function(const struct op_code *code, enum phase phase))(const struct call *call);

/* The call of a phase on the case's own tensors, without what the phase must not look at: members
 * that `reads` does not name keep their shapes and have no data. The arrays in the call lie
 * in `storage`. */
struct op_case_storage {
    struct tensor x[OP_MAX_INPUTS], d_x[OP_MAX_INPUTS];
    struct tensor params[OP_MAX_PARAMS], d_params[OP_MAX_PARAMS], saved[OP_MAX_SAVED];
};
struct call op_case_call(const struct op_case *c, enum phase phase, struct op_case_storage *storage);

/* True if the code supports the case's call of a phase. */
bool op_case_supports(const struct op_case *c, const struct op_code *code, enum phase phase);

/* Room for the kernel plans of a case's calls (NULL: the code needs none), which op_case_plan makes and gives
 * to calls. */
void op_case_prepare(const struct op_code *code, void **kernel_plans);
enum status op_case_plan(const struct op_code *code, void *kernel_plans, struct call *call);
void op_case_release(void *kernel_plans);

/* Calls the phase's function. */
enum status op_case_call_code(const struct op_code *code, const struct call *call);

/* Asks for the phase's workspace, poisons it, runs the phase; with call->device on copies there,
 * which come back. run_captured: the device captures the work, then launches it. */
enum status op_case_run(const struct op_code *code, void *kernel_plan, struct call *call);
enum status op_case_run_captured(const struct op_code *code, void *kernel_plan, struct call *call);
