/* planned.cuh: runs calls by their kernel plans, and does behind them what the plans leave out. */
#pragma once

#include "kernels/support/cuda.cuh"

extern "C" {
#include "kernels/algorithm.h"
}

/* Runs a plan, and then the call's epilogues that the plan does not do itself, each as a sweep over the
 * result, which is y, or in backward_data d_x[0]. */
enum status planned_run(const struct call *call, const struct kernel_plan *plan);
size_t epilogues_workspace(const struct call *call, const struct kernel_plan *plan);

/* True if the call adds a number a channel to d_x[0]. */
static inline bool planned_adds_bias(const struct call *call)
{
    const struct tensor *addend = call_operand(call, OPERAND_D_X_ADDEND);
    return addend && shape_count(addend->shape) == call->d_x[0].shape.c && call->epilogue_count == 1;
}

/* The phases' functions of code with such algorithms. */
enum status planned_call_run(const struct call *call);

/* The handle of cuDNN for a call, or for one that is planned. */
enum status call_cudnn(const struct call *call, cudnnHandle_t *handle);
