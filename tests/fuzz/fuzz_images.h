/* fuzz_images.h: images out of files, on every way that a run has for them. */
#pragma once

#include "data/dataset/dataset.h"
#include "fuzz.h"

/* Decodes a file whole and in part, and varies, normalises and encodes what comes out. */
void fuzz_image_file(const uint8_t *data, size_t size);

/* Opens `path` as a data set in `format`, and reads of what is there; `name` is what faults must name. */
void fuzz_dataset(const char *format, const struct dataset_options *options, const char *name);
