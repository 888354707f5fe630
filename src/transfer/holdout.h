/* holdout.h: whether the images that weights are validated on are among those that they were trained on. */
#pragma once

#include "input/data.h"

/* For an evaluation of weights on a holdout (data.val_fraction, data.fold): checks that the data are those of
 * their run, BAD_DATA otherwise, with the first differences. `named`: the data are the user's own choice, and
 * may be others altogether. Warns of images of another holdout that the weights were trained on, and of
 * weights that do not tell. */
enum status holdout_check(const char *weights, bool named, const struct settings *settings,
                          struct data *data);

/* For training that begins with weights (after data_identify): warns of validation images that the weights
 * were trained on. */
void holdout_warn(const char *weights, const struct data *data);
