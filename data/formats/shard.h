/* shard.h: one file of a packed data set, whatever its format, and its index. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset/dataset.h"
#include "data/formats/packed.h"

struct shard {
    char *path;
    int file;                  /* -1: not opened yet */
    size_t count;              /* bytes in it */
    int64_t first;             /* index of its first image in the data set */
    int64_t images;
    struct packed_entry *entries;
    struct packed_target *targets;     /* [images]; NULL: the entries say all */
    struct packed_entry *masks;        /* [images] PNG files of their masks; NULL without TARGET_MASK */
    uint32_t *labels;          /* of all images... */
    int64_t *label_begins;     /* ...[images + 1] where those of each begin */
    bool checked;              /* a packed file: entries have checksums */
    struct packed_set set;     /* that a packed file says it belongs to */
};

/* The number of bytes that the file is known to have. */
bool shard_read(const struct shard *shard, uint64_t at, void *to, size_t count, struct reason *reason);

/* Each makes the entries of a file that has been opened, and adds to what is known of the data set. The first
 * shard defines the class names, and all others must agree. */
bool packed_index(struct shard *shard, bool first, struct dataset *dataset, struct reason *reason);
/* Checks that packed files, those of `folder`, are the shards of one set, each present once. The reason lists
 * those that are not, and those that are missing. */
enum status shard_set_check(const char *folder, const struct shard *shards, int count);
/* A tar archive as WebDataset writes them, whose labels are taken for that kind: it names no classes;
 * dataset->classes grows to what labels ask. */
bool webdataset_index(struct shard *shard, enum target_kind kind, struct dataset *dataset,
                      struct reason *reason);
