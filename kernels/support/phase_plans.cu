#include "kernels/support/phase_plans.cuh"

#include <stdlib.h>

extern "C" {
#include "base/memory.h"
}

struct phase_plans {
    const struct phase_plan_functions *functions;
    struct phase_plan of[PHASE_COUNT];
};

static enum status phase_plan_choose(struct phase_plans *plans, const struct call *call, enum phase phase)
{
    TRY(plans->functions->choose(call, phase, &plans->of[phase]));
    plans->of[phase].chosen = true;
    return OK;
}

void phase_plans_release(void *kernel_plan)
{
    struct phase_plans *plans = (struct phase_plans *)kernel_plan;
    if (!plans) return;
    for (int i = 0; i < PHASE_COUNT; i++) plans->functions->free(plans->of[i].plan);
    free(plans);
}

enum status phase_plans_prepare(const struct phase_plan_functions *functions, const struct call *call,
                                void **kernel_plan)
{
    struct phase_plans *plans = (struct phase_plans *)memory_new(1, sizeof *plans);
    bool both = call->phases & AS_BIT(PHASE_BACKWARD);
    bool data = !both && call->d_x[0].shape.rank > 0;
    bool params = !both && call->param_count > 0 && call->d_params[0].shape.rank > 0;
    const bool asked[PHASE_COUNT] = {true, both, data, params};      /* in enum phase's order */
    plans->functions = functions;
    enum status status = OK;
    for (int i = 0; status == OK && i < PHASE_COUNT; i++)
        if (asked[i]) status = phase_plan_choose(plans, call, (enum phase)i);
    if (status == OK) *kernel_plan = plans;
    else phase_plans_release(plans);
    return status;
}

enum status phase_plan_of(const struct call *call, const struct phase_plan **plan)
{
    struct phase_plans *plans = (struct phase_plans *)call->kernel_plan;
    *plan = &plans->of[call->phase];
    return (*plan)->chosen ? OK : phase_plan_choose(plans, call, call->phase);
}
