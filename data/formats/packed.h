/* packed.h: the file format of packed data sets (amptrain-pack(5)): its layout, and a writer. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Numbers are little-endian. Images come after the header, each at a multiple of PACKED_ALIGNED bytes;
 * then the index, an entry an image; then the class names, each ended by '\0'. */
#define PACKED_SIGNATURE "AMPPACK?*"              /* of a file (base/signature.h) */
#define PACKED_MAGIC "AMPPACK2"                   /* its last digit is the version; 1 has no `set`, */
#define PACKED_TARGETS '3'                        /* this one has `targets`, where there are some */
#define PACKED_SHARDS_MAX 10000
#define PACKED_ALIGNED 64

/* The files that one call of amptrain pack wrote: all have the same id, which follows from their content. */
struct packed_set {
    uint64_t id;
    uint32_t number, count;    /* of this file, from 0; of all. A file by itself: 0 of 1, and its id is 0 */
};

/* Data besides entries: labels, numbers, groups: a struct packed_target an image; then the labels of all,
 * 4 bytes each, or of masks an entry an image. */
struct packed_targets {
    uint64_t at, bytes;
    uint32_t kind;             /* enum target_kind */
    uint32_t crc;
};

struct packed_target {
    uint64_t group;            /* hash of the group's name; 0: in none */
    float number;              /* a number, rounded... */
    union {
        uint32_t labels;       /* how many; 0 of older versions' numbers */
        float rest;            /* ...and what rounding cut off */
    };
};

static inline void packed_set_number(struct packed_target *target, double number)
{
    target->number = (float)number;
    target->rest = (float)(number - (double)target->number);
}

static inline double packed_number(const struct packed_target *target)
{
    return (double)target->number + (double)target->rest;
}

struct packed_header {
    char magic[8];
    uint32_t header_bytes;     /* 128 */
    uint32_t entry_bytes;      /* 32 */
    uint64_t count;            /* images */
    uint64_t index_at, names_at, names_bytes, file_bytes;
    uint32_t classes;
    uint32_t channels;         /* 1 grey, 3 RGB: of raw pixels, and what files are decoded to; raw
                                * pixels may have up to IMAGE_CHANNELS_MAX */
    uint32_t h, w;             /* of every image, if all are raw and of one size; otherwise 0 */
    uint32_t index_crc, names_crc;
    struct packed_set set;
    struct packed_targets targets;
    uint32_t reserved;         /* 0 */
    uint32_t crc;              /* CRC-32C of the header before it */
};

enum packed_kind {
    PACKED_RAW,                /* h x w x channels bytes */
    PACKED_FILE,               /* a PNG, JPEG, WebP or TIFF file */
};

struct packed_entry {
    uint64_t at;
    uint32_t bytes;
    uint32_t label;
    uint32_t crc;              /* CRC-32C of the image's bytes */
    uint32_t kind;
    uint32_t h, w;             /* of raw pixels */
};

_Static_assert(sizeof(struct packed_header) == 128, "as in the file");
_Static_assert(sizeof(struct packed_entry) == 32, "as in the file");
_Static_assert(sizeof(struct packed_target) == 16, "as in the file");

struct packed_writer;

/* Begins a file. `names`: of the classes. */
enum status packed_create(const char *path, int channels, char *const *names, int classes,
                          struct packed_writer **writer);
/* Images have targets from now on, the first one included, of this enum target_kind: call packed_target for
 * each before it is added. */
void packed_begin_targets(struct packed_writer *writer, uint32_t kind);
/* The mask of the image that is added next, a PNG whose numbers are classes, and 255 none: once an image. */
enum status packed_mask(struct packed_writer *writer, const void *bytes, size_t count);
void packed_target(struct packed_writer *writer, struct packed_target target, const uint32_t *labels);
/* Adds an image; only label, kind and size of `entry` need be set. */
enum status packed_add(struct packed_writer *writer, struct packed_entry entry, const void *bytes,
                       size_t count);
/* Writes the index and syncs the file. */
enum status packed_finish(struct packed_writer *writer);
void packed_free(struct packed_writer *writer);        /* accepts NULL */

/* Marks finished files, which are not yet in use, as the shards of one set. */
enum status packed_join(char *const *paths, int count);
/* The set that the file at `path` is a shard of; false if it is no packed file of this version. */
_Bool packed_set_of(const char *path, struct packed_set *set);
