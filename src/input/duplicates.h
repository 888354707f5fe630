/* duplicates.h: finds validation images that are training images as well. */
#pragma once

#include "input/data.h"

/* Warns of validation images whose files are identical to those of training images. Only files of equal size
 * are read; large data sets are skipped. */
void duplicates_warn(const struct data *data);
