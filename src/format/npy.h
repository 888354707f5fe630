/* npy.h: writes an array of fp32 numbers as NumPy reads it: format 1.0 of numpy/lib/format.py. */
#pragma once

#include "base/atomic_file.h"

/* How a file of the format begins (base/signature.h). */
#define NPY_SIGNATURE "\x93NUMPY*"

struct npy_file {
    struct atomic_file file;             /* without a stream: it cannot be written, or was not begun */
    const char *path;
};

/* An array of `rank` dimensions, up to 3. Numbers are added in order, any number at a time. npy_end is called
 * in any case: with an error in `status` the file is not kept, and the error is returned. */
enum status npy_begin(const char *path, const int64_t *shape, int rank, struct npy_file *npy);
enum status npy_add(struct npy_file *npy, const float *values, size_t count);
enum status npy_end(struct npy_file *npy, enum status status);
