/* duplicates.h: finds validation images that are training images as well. */
#pragma once

#include "session/data.h"

/* Warns of validation images whose files are, byte for byte, those of training images, too. Only files of
 * equal size are read; large data sets are left out. */
void duplicates_warn(const struct data *data);
