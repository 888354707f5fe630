#include "kernels/optimizer/optimizer.h"

#include <string.h>

const struct optimizer *const optimizer_table[] = {
    &sgd_optimizer,     &adam_optimizer, &adamw_optimizer, &adagrad_optimizer,
    &rmsprop_optimizer, &lars_optimizer, &lamb_optimizer,  &lion_optimizer,
    &muon_optimizer,    NULL,
};

const struct optimizer *optimizer_find(const char *name)
{
    for (const struct optimizer *const *o = optimizer_table; *o; o++)
        if (strcmp((*o)->name, name) == 0) return *o;
    return NULL;
}

double optimizer_momentum(const struct optimizer *optimizer, const struct optimizer_settings *settings)
{
    return optimizer->momentum_is_beta1 ? settings->beta1 : settings->momentum;
}
