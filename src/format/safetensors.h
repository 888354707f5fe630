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

#define SAFETENSORS_HEADER_MAX 100000000
#define SAFETENSORS_TENSORS_MAX 100000   /* each costs memory before anything is known of it */
#define SAFETENSORS_PATH 200   /* longest path that messages show whole */

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
    int64_t data;               /* where in the file the data begin */
    struct safetensors_entry *entries;   /* in the order of their names */
    int count;
    struct safetensors_pair *metadata;
    int metadata_count;
    bool checksummed;           /* the header carries its own checksum, and it is right */
};

/* Reads and checks the header; no tensor yet. Refused, with a reason: a header longer than the
 * file or 100 MB or of too many tensors, anything but the JSON that the format asks for, a key
 * twice, holes, overlaps, sizes that do not follow from shape and type, a wrong header checksum. */
bool safetensors_open(const char *path, struct safetensors *file, struct reason *reason);
bool safetensors_open_in(const struct directory *in, const char *name, struct safetensors *file,
                         struct reason *reason);
void safetensors_close(struct safetensors *file);            /* accepts a zeroed struct */

int safetensors_find(const struct safetensors *file, const char *name);         /* -1: not there */
const char *safetensors_value(const struct safetensors *file,
                              const char *key); /* metadata; NULL: not there */

/* The bytes of one tensor; its checksum is verified when the file has one. */
bool safetensors_read(const struct safetensors *file, int entry, void *data, struct reason *reason);

/* Reads a tensor for its checksum alone, whatever its size. */
bool safetensors_verify(const struct safetensors *file, int entry, struct reason *reason);

/* Whether the file names a checksum for every tensor. */
bool safetensors_complete(const struct safetensors *file, struct reason *reason);

/* The tensors to write: they are asked for one at a time, in any order, `data` having room for one. */
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

/* Writes and syncs a file; it may stand half-written at `path` after a failure. Tensors are in the
 * order in which the format's own library writes them: by type, then by name. */
enum status safetensors_write(const char *path, const struct safetensors_content *content);
enum status safetensors_write_in(const struct directory *in, const char *name,
                                 const struct safetensors_content *content);
