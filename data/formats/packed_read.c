/* packed_read.c: reads and checks the header, index and class names of a packed file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "data/formats/shard.h"

/* A part of the file, in new memory. */
static void *read_part(const struct shard *shard, uint64_t at, size_t count, struct reason *reason)
{
    void *part = memory_try(count, 1);
    if (!part) because(reason, "%s: not enough memory for %zu bytes of it", shard->path, count);
    if (!part || shard_read(shard, at, part, count, reason)) return part;
    free(part);
    return NULL;
}

/* True if `count` elements of `size` bytes from `at` on are within the file. */
static bool lies_within(const struct shard *shard, uint64_t at, uint64_t count, uint64_t size)
{
    return at <= shard->count && count <= (shard->count - at) / size;
}

static bool check_header(const struct shard *shard, const struct packed_header *header, struct reason *reason)
{
    if (crc32c(0, header, offsetof(struct packed_header, crc)) != header->crc)
        return because(reason, "%s: the header is damaged", shard->path);
    if (header->header_bytes != sizeof *header || header->entry_bytes != sizeof(struct packed_entry))
        return because(reason, "%s: the header is invalid", shard->path);
    if (header->file_bytes != shard->count)
        return because(reason, "%s: truncated: it has %zu of %llu bytes", shard->path, shard->count,
                       (unsigned long long)header->file_bytes);
    if (!lies_within(shard, header->index_at, header->count, header->entry_bytes) ||
        !lies_within(shard, header->names_at, header->names_bytes, 1) || header->index_at % 8 != 0)
        return because(reason, "%s: the index is outside the file", shard->path);
    if (header->channels < 1 || header->channels > IMAGE_CHANNELS_MAX || header->classes < 1 ||
        header->classes > header->names_bytes || header->classes > CLASSES_MAX ||
        (header->h > 0) != (header->w > 0))
        return because(reason, "%s: the header is invalid", shard->path);
    return true;
}

static bool read_entries(struct shard *shard, const struct packed_header *header, struct reason *reason)
{
    size_t bytes = header->count * sizeof *shard->entries;
    shard->entries = read_part(shard, header->index_at, bytes, reason);
    if (!shard->entries) return false;
    shard->images = (int64_t)header->count;
    if (crc32c(0, shard->entries, bytes) != header->index_crc)
        return because(reason, "%s: the index is damaged", shard->path);
    for (uint64_t i = 0; i < header->count; i++) {
        const struct packed_entry *entry = &shard->entries[i];
        bool raw = entry->kind == PACKED_RAW;
        bool good = lies_within(shard, entry->at, entry->bytes, 1) && entry->label < header->classes &&
                    (raw || (entry->kind == PACKED_FILE && entry->bytes <= IMAGE_FILE_BYTES_MAX));
        good = good && (!raw || (uint64_t)entry->h * entry->w == entry->bytes / header->channels);
        good = good && (!raw || (entry->h > 0 && entry->w > 0 && entry->bytes % header->channels == 0));
        if (!good || (header->h && (!raw || entry->h != header->h || entry->w != header->w)))
            return because(reason, "%s: the entry of image %llu is invalid", shard->path,
                           (unsigned long long)i);
    }
    return true;
}

/* Labels behind the targets: as many as these have, each of a class. */
static bool take_labels(struct shard *shard, const struct packed_header *header, const char *part)
{
    size_t before = header->count * sizeof *shard->targets;
    uint64_t labels = (header->targets.bytes - before) / sizeof *shard->labels;
    const char *from = part + before;
    shard->labels = memory_new(labels + 1, sizeof *shard->labels);
    shard->label_begins = memory_new(header->count + 1, sizeof *shard->label_begins);
    memcpy(shard->labels, from, labels * sizeof *shard->labels);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < header->count; i++) {
        shard->label_begins[i] = (int64_t)sum;
        sum += header->targets.kind == TARGET_NUMBER ? 0 : shard->targets[i].labels;
        if (sum > labels) return false;
    }
    shard->label_begins[header->count] = (int64_t)sum;
    for (uint64_t i = 0; i < labels; i++)
        if (shard->labels[i] >= header->classes) return false;
    return sum == labels && (header->targets.kind == TARGET_LABELS || labels == 0);
}

/* Entries of the masks behind the targets, one an image. */
static bool take_masks(struct shard *shard, const struct packed_header *header, const char *part)
{
    size_t before = header->count * sizeof *shard->targets, bytes = header->count * sizeof *shard->masks;
    if (header->targets.bytes != before + bytes || header->classes > MASK_CLASSES_MAX) return false;
    shard->masks = memory_new(header->count + 1, sizeof *shard->masks);
    memcpy(shard->masks, part + before, bytes);
    for (uint64_t i = 0; i < header->count; i++) {
        const struct packed_entry *mask = &shard->masks[i];
        if (!lies_within(shard, mask->at, mask->bytes, 1) || mask->kind != PACKED_FILE ||
            mask->bytes > IMAGE_FILE_BYTES_MAX)
            return false;
    }
    return true;
}

static bool numbers_are_valid(const struct shard *shard)
{
    for (int64_t i = 0; i < shard->images; i++)
        if (!(fabs(packed_number(&shard->targets[i])) <= TARGET_NUMBER_MAX)) return false;
    return true;
}

static bool read_targets(struct shard *shard, bool first, const struct packed_header *header,
                         struct dataset *dataset, struct reason *reason)
{
    const struct packed_targets *targets = &header->targets;
    bool some = header->magic[strlen(PACKED_MAGIC) - 1] == PACKED_TARGETS;
    enum target_kind kind = some ? (enum target_kind)targets->kind : TARGET_CLASS;
    if (!first && dataset->target != kind)
        return because(reason, "%s: has other kinds of labels than others", shard->path);
    dataset->target = kind;
    if (!some) return true;
    size_t least = header->count * sizeof *shard->targets;
    if (!lies_within(shard, targets->at, targets->bytes, 1) || targets->bytes < least ||
        (targets->bytes - least) % sizeof *shard->labels != 0 || targets->kind < TARGET_CLASS ||
        targets->kind > TARGET_MASK || (targets->kind == TARGET_NUMBER && header->classes != 1))
        return because(reason, "%s: the labels are invalid", shard->path);
    char *part = read_part(shard, targets->at, targets->bytes, reason);
    if (!part) return false;
    bool good = crc32c(0, part, targets->bytes) == targets->crc ||
                because(reason, "%s: the labels are damaged", shard->path);
    shard->targets = memory_new(header->count + 1, sizeof *shard->targets);
    memcpy(shard->targets, part, least);
    bool masks = targets->kind == TARGET_MASK;
    if (good && (!(masks ? take_masks : take_labels)(shard, header, part) || !numbers_are_valid(shard)))
        good = because(reason, "%s: the labels are invalid", shard->path);
    free(part);
    return good;
}

static bool take_names(const char *path, const struct packed_header *header, const char *name,
                       struct dataset *dataset, struct reason *reason)
{
    const char *end = name + header->names_bytes;
    if (crc32c(0, name, header->names_bytes) != header->names_crc || end[-1] != '\0')
        return because(reason, "%s: the class names are damaged", path);
    bool first = dataset->class_names == NULL;
    if (!first && dataset->classes != (int)header->classes)
        return because(reason, "%s: %u classes, but others have %d", path, header->classes,
                       dataset->classes);
    if (first) {
        dataset->class_names = memory_new(header->classes, sizeof *dataset->class_names);
        dataset->classes = (int)header->classes;
    }
    for (uint32_t i = 0; i < header->classes; i++, name += strlen(name) + 1) {
        if (name >= end) return because(reason, "%s: too few class names", path);
        if (first)
            dataset->class_names[i] = text_copy(name);
        else if (strcmp(dataset->class_names[i], name) != 0)
            return because(reason, "%s: class %u is '%s', but '%s' in others", path, i, name,
                           dataset->class_names[i]);
    }
    return true;
}

static bool read_names(const struct shard *shard, const struct packed_header *header, struct dataset *dataset,
                       struct reason *reason)
{
    char *names = read_part(shard, header->names_at, header->names_bytes, reason);
    bool good = names && take_names(shard->path, header, names, dataset, reason);
    free(names);
    return good;
}

/* Version 1 does not have it. */
static struct packed_set set_of(const struct packed_header *header)
{
    bool older = header->magic[sizeof header->magic - 1] == '1';
    return older ? (struct packed_set){.count = 1} : header->set;
}

bool packed_index(struct shard *shard, bool first, struct dataset *dataset, struct reason *reason)
{
    struct packed_header header;
    if (shard->count < sizeof header) return because(reason, "%s: truncated", shard->path);
    if (!shard_read(shard, 0, &header, sizeof header, reason)) return false;
    if (!check_header(shard, &header, reason)) return false;
    shard->checked = true;
    shard->set = set_of(&header);
    if (shard->set.count < 1 || shard->set.count > PACKED_SHARDS_MAX || shard->set.number >= shard->set.count)
        return because(reason, "%s: the header is invalid", shard->path);
    if (!read_entries(shard, &header, reason) || !read_names(shard, &header, dataset, reason) ||
        !read_targets(shard, first, &header, dataset, reason))
        return false;
    if (!first && dataset->c != (int)header.channels)
        return because(reason, "%s: %u channels, but others have %d", shard->path, header.channels,
                       dataset->c);
    bool alike = first || (dataset->h == (int)header.h && dataset->w == (int)header.w);
    dataset->c = (int)header.channels;
    dataset->h = alike ? (int)header.h : 0;
    dataset->w = alike ? (int)header.w : 0;
    return true;
}
