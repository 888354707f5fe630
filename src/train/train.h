/* train.h: the training loop: steps, epochs, evaluation, checkpoints, and when to stop. */
#pragma once

#include "train/run.h"

/* Trains until the epochs are done, early stopping, max_steps (all OK), max_time or a signal
 * (STOPPED, a checkpoint being written), or a failure. */
enum status train(struct session *session, const struct run_options *options);
