/* phase_plans.cuh: the kernel plans of a layer with weights, one for each phase, as its call->kernel_plan. */
#pragma once

extern "C" {
#include "kernels/op.h"
}

/* `plan` is the op's own; NULL without a device. */
struct phase_plan {
    bool chosen;
    void *plan;
    size_t workspace;            /* bytes */
};

/* An op's functions; choose sets plan and workspace. */
struct phase_plan_functions {
    enum status (*choose)(const struct call *call, enum phase phase, struct phase_plan *made);
    void (*free)(void *plan);
};

/* Chooses a plan for every phase that the call's tensors ask for. op_code.release is phase_plans_release. */
enum status phase_plans_prepare(const struct phase_plan_functions *functions, const struct call *call,
                                void **kernel_plan);
void phase_plans_release(void *kernel_plan);

/* The plan for call->phase, of call->kernel_plan; one that was unknown to prepare is chosen now. */
enum status phase_plan_of(const struct call *call, const struct phase_plan **plan);
