/* safetensors.h: tensors in a file with a JSON header: a strict reader, and a durable writer.
 *
 * The format is github.com/huggingface/safetensors: u64 header length, JSON header, data without gaps. Files
 * that we write have checksums (CRC-32C) in their metadata, of the header and of every tensor, so that any
 * changed bit is detected. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/directory.h"
#include "base/tensor.h"

/* How a file that we write begins (base/signature.h); other metadata follow. */
#define SAFETENSORS_SIGNATURE "????????{\"__metadata__\":{\"header_crc32c\":\"????????\""

#define SAFETENSORS_HEADER_MAX 100000000
#define SAFETENSORS_TENSORS_MAX 100000   /* each needs memory before it is checked */

struct safetensors_entry {
    char *name;
    enum dtype dtype;
    struct shape shape;         /* rank 0 is a single number */
    int64_t begin, end;         /* bytes, from the beginning of the data */
};

struct safetensors_pair {
    char *key, *value;
};

struct safetensors {
    char *path;
    int file;                   /* descriptor */
    int64_t data;               /* offset of the data in the file */
    struct safetensors_entry *entries;   /* in the order of their names */
    int count;
    struct safetensors_pair *metadata;
    int metadata_count;
    bool checksummed;           /* the header contains a correct checksum of itself */
};

/* Reads and checks the header; no tensor yet. Refused, with a reason: a header longer than the file or 100 MB
 * or with too many tensors, invalid JSON or JSON that is not as the format requires, duplicate keys, gaps,
 * overlaps, sizes that do not match shape and type, a wrong header checksum. */
bool safetensors_open(const char *path, struct safetensors *file, struct reason *reason);
bool safetensors_open_in(const struct directory *in, const char *name, struct safetensors *file,
                         struct reason *reason);
void safetensors_close(struct safetensors *file);            /* accepts a zeroed struct */

int safetensors_find(const struct safetensors *file, const char *name);         /* -1: not there */
const char *safetensors_value(const struct safetensors *file,
                              const char *key); /* metadata; NULL: absent */

/* Reads one tensor, and verifies its checksum if the file has one. */
bool safetensors_read(const struct safetensors *file, int entry, void *data, struct reason *reason);

/* Reads a tensor of any size only to verify its checksum. */
bool safetensors_verify(const struct safetensors *file, int entry, struct reason *reason);

/* True if the file names a checksum for every tensor. */
bool safetensors_complete(const struct safetensors *file, struct reason *reason);

/* The tensors to write, which are requested one at a time, in any order; `data` has room for one. */
struct safetensors_item {
    const char *name;
    enum dtype dtype;
    struct shape shape;
};
struct safetensors_content {
    const struct safetensors_item *items;
    int count;
    const struct safetensors_pair *metadata;
    int metadata_count;
    enum status (*read)(void *context, int item, void *data);
    void *context;
};

/* Writes and syncs a file, which may be incomplete after a failure. Tensors are in the order in which the
 * format's own library writes them: by type, then by name. */
enum status safetensors_write(const char *path, const struct safetensors_content *content);
enum status safetensors_write_in(const struct directory *in, const char *name,
                                 const struct safetensors_content *content);
