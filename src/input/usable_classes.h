/* usable_classes.h: classes that have images, but none that can be used. */
#pragma once

#include "input/data.h"

/* Reads images of each class of both splits until one can be used; those that cannot are reported. */
void usable_classes_try(const struct data *data);

/* The names of classes of which all images of a split are known to be unusable, as a list with the splits,
 * for the caller to free; NULL: there are none, or images have no classes. */
char *usable_classes_missing(const struct data *data);
