/* tensorboard.h: what TensorBoard shows of a run in addition to curves. */
#pragma once

#include "conf/settings.h"
#include "evaluate/evaluate.h"
#include "format/events.h"
#include "input/data.h"

/* The resolved configuration. `file`: its path; NULL: it was not read from a file. */
void tensorboard_settings(struct events *events, int64_t step, const struct settings *settings,
                          const char *file);

/* Pictures of validation images, numbered; those without one are left out. */
void tensorboard_strips(struct events *events, int64_t step, const struct mask_strip *strips, int count);

/* The confusion matrix, of images or of pixels: a table of up to 50 classes, a picture of up to 1000. */
void tensorboard_confusion(struct events *events, int64_t step, const struct data *data,
                           const struct evaluation *evaluation);
