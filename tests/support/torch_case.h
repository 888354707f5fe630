/* torch_case.h: writes files as torch.save does, right ones and wrong ones, for tests and fuzzing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

struct bytes {
    uint8_t *data;
    size_t count, room;
};
void bytes_add(struct bytes *bytes, const void *data, size_t count);
void bytes_number(struct bytes *bytes, uint64_t value, int count);      /* little-endian */
void bytes_free(struct bytes *bytes);

/* Pickles: opcodes of protocol 2. */
void pickle_text(struct bytes *pickle, const char *text);               /* BINUNICODE */
void pickle_number(struct bytes *pickle, int64_t value);                /* LONG1 of 8 bytes */
void pickle_tuple(struct bytes *pickle, const int64_t *values, int count);
void pickle_code(struct bytes *pickle, const char *code);               /* as it is, to its end */

/* A tensor, a call of _rebuild_tensor_v2, as the value of `name`. */
struct torch_tensor {
    const char *name, *type, *key;      /* "FloatStorage", "0" */
    int64_t elements, offset;
    int rank;
    int64_t size[5], stride[5];
};
void pickle_tensor(struct bytes *pickle, const struct torch_tensor *tensor);

/* Archives of stored members. */
struct archive {
    struct bytes content, list;
    int count;
    bool large;                         /* sizes and places are numbers of 64 bits, as beyond 4 GiB */
};
void archive_add(struct archive *archive, const char *name, const void *data, size_t bytes);
/* Appends the list and its end to the content. */
void archive_end(struct archive *archive);
void archive_free(struct archive *archive);
