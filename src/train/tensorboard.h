/* tensorboard.h: what TensorBoard shows of a run in addition to curves. */
#pragma once

#include "conf/settings.h"
#include "evaluate/evaluate.h"
#include "format/events.h"
#include "input/data.h"

/* The resolved configuration. `file`: its path; NULL: it was not read from a file. */
void tensorboard_settings(struct events *events, int64_t step, const struct settings *settings,
                          const char *file);

/* The confusion matrix, as a table of up to 50 classes and a picture of up to 1000. */
void tensorboard_confusion(struct events *events, int64_t step, const struct data *data,
                           const struct evaluation *evaluation);
