/* detect.h: recognises the data set that the files in a folder belong to, and the subfolder that contains
 * them. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* The name of the format of the files in `path` and, in new memory, the folder that has them: `path`, or one
 * below it, as torchvision and archives make it. NULL if no format matches. */
const char *detect(const char *path, char **folder);

/* The split that a folder of this name holds, whatever its case and separators: train, training; val, valid,
 * validation, eval, dev, test and the like, perhaps with "set", "data", "images" or "split" behind it. */
enum detected_split { DETECTED_NONE, DETECTED_TRAIN, DETECTED_VAL };
enum detected_split detect_split(const char *name);

/* The folders in `path` of training and of validation images, each with what `has` looks for (NULL: class
 * folders of its own), and the names of all other folders beside them. In new memory; NULL: none. */
struct detected_splits {
    char *train, *val, *others;
};
/* False: there are no training images, and nothing is set. */
bool detect_splits(const char *path, bool (*has)(const char *path), struct detected_splits *splits);

/* True if the names of folders are those of images and of masks or boxes for them, as data sets of other
 * tasks have them: images/ and masks/, labels/ or annotations/. */
bool detect_beside(char *const *names, int count, const char **images, const char **beside);

/* True if a file in a folder is a packed file or a tar archive, by its name. */
bool detect_packed(const char *name);

/* The name of the likely format of `path`: what detect finds, packed files, or a folder of images. */
const char *detect_format(const char *path);

/* The name of the format of `path` if its files show that it is not `format`; NULL: they do not. */
const char *detect_other(const char *format, const char *path);

/* False, with a reason, if it is clear why `path` does not contain the files of `format`. */
bool detect_check(const char *format, const char *path, struct reason *reason);
