/* optimizer_rule.h: definitions shared by every optimizer's rule (optimizer_NAME.h) and every device's
 * update.
 *
 * A rule is a struct of fp32 factors, the same for all elements of a parameter, a function that computes them
 * for an update, and a function that updates one element. All of it runs on every device. */
#pragma once

#include <math.h>

#include "base/anywhere.h"
#include "kernels/optimizer/optimizer.h"

struct optimizer_numbers {
    double lr, momentum;
    double decay;              /* weight decay that applies to the parameter */
    float factor;              /* unscales and clips the gradient */
    int64_t t;                 /* number of this update, from 1 */
};

/* The optimizer's sequence except the update itself: advances the state, given the sum of the squares of all
 * gradients, and sets factor and t of `numbers`, whose lr and momentum are set. Returns false if the step is
 * skipped. */
ANYWHERE bool optimizer_decide(const struct optimizer_settings *settings,
                               const struct scaler_settings *scaling, double squares,
                               struct optimizer_numbers *numbers, struct optimizer_state *state)
{
    double scale = state->scaler.scale, norm;
    state->skipped = !scaler_check(scaling, &state->scaler, squares, &norm);
    state->grad_norm = (float)norm;
    if (state->skipped) {
        state->skipped_steps++;
        return false;
    }
    double clip = settings->clip_norm > 0 ? fmin(1.0, settings->clip_norm / (norm + 1e-6)) : 1;
    state->updates++;
    state->lr = (float)numbers->lr;
    state->momentum = (float)numbers->momentum;
    numbers->factor = (float)(clip / scale);
    numbers->t = state->updates;
    return true;
}
