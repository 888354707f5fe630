/* mask_summary.h: the classes of all masks of a run, counted. */
#pragma once

#include "input/data.h"

/* Reads the masks of training and of validation images, logs each class's share of pixels, and warns of
 * classes without any and of masks that cannot be read. BAD_DATA: one is wrong (masks_count). Does nothing
 * without masks. */
enum status mask_summary_log(const struct data *data);
