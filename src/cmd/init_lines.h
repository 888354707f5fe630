/* init_lines.h: the lines of a configuration that `amptrain init` writes: "KEY = VALUE     ; COMMENT". */
#pragma once

#include "base/shape.h"
#include "base/text.h"
#include "cmd/init_findings.h"

void init_add(struct text *out, const char *key, const char *comment, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The side of a square, or height and width. */
void init_add_size(struct text *out, const char *key, const char *comment, struct image_size size);

/* A path, as it must be written in a configuration `file` (NULL: in the working folder). */
void init_add_path(struct text *out, const char *key, const char *path, const char *file,
                   const char *comment);

void init_add_numbers(struct text *out, const char *key, const double *values, int count,
                      const char *comment);

/* data.channels and data.range, where they are not auto. */
void init_add_samples(struct text *out, const struct init_findings *found);

/* model.bn_momentum, if batches of this many images are so few an epoch that the usual one is too low. */
void init_add_momentum(struct text *out, const struct init_findings *found, int batch);
