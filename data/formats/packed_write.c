/* packed_write.c: writes a packed data set: images one after the other, then index and header. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/directory.h"
#include "base/memory.h"
#include "data/formats/packed.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packed data sets can only be written on a little-endian machine"
#endif

struct packed_writer {
    FILE *file;
    char *path;
    struct packed_header header;
    struct packed_entry *entries;
    struct packed_target *targets;
    uint64_t target_count;
    struct packed_entry *masks;
    uint64_t mask_count;
    uint32_t *labels;          /* of all images */
    uint64_t label_count;
    char *names;
    uint64_t at;
};

static enum status cannot_write(const struct packed_writer *writer)
{
    return fail(FAILED, "%s: %s", writer->path, strerror(errno));
}

static enum status packed_append(struct packed_writer *writer, const void *bytes, size_t count)
{
    if (count && fwrite(bytes, count, 1, writer->file) != 1) return cannot_write(writer);
    writer->at += count;
    return OK;
}

static enum status packed_align(struct packed_writer *writer)
{
    static const char zeros[PACKED_ALIGNED];
    size_t past = writer->at % PACKED_ALIGNED;
    return past ? packed_append(writer, zeros, PACKED_ALIGNED - past) : OK;
}

static void keep_names(struct packed_writer *writer, char *const *names, int classes)
{
    struct packed_header *header = &writer->header;
    for (int i = 0; i < classes; i++) header->names_bytes += strlen(names[i]) + 1;
    char *to = writer->names = memory_new(header->names_bytes, 1);
    for (int i = 0; i < classes; i++) to = stpcpy(to, names[i]) + 1;
    header->names_crc = crc32c(0, writer->names, header->names_bytes);
}

enum status packed_create(const char *path, int channels, char *const *names, int classes,
                          struct packed_writer **result)
{
    struct packed_writer *writer = memory_new(1, sizeof *writer);
    writer->path = text_copy(path);
    writer->header = (struct packed_header){
        .header_bytes = sizeof writer->header,
        .entry_bytes = sizeof *writer->entries,
        .classes = (uint32_t)classes,
        .channels = (uint32_t)channels,
        .set = {.count = 1},
    };
    memcpy(writer->header.magic, PACKED_MAGIC, sizeof writer->header.magic);
    keep_names(writer, names, classes);
    struct reason reason;
    writer->file = directory_stream(&directory_working, path, "w", &reason);
    static const struct packed_header none;
    enum status status = writer->file ? packed_append(writer, &none, sizeof none)
                                      : fail(FAILED, "%s: %s", path, reason.text);
    if (status != OK)
        packed_free(writer);
    else
        *result = writer;
    return status;
}

void packed_begin_targets(struct packed_writer *writer, uint32_t kind)
{
    writer->header.magic[strlen(PACKED_MAGIC) - 1] = PACKED_TARGETS;
    writer->header.targets.kind = kind;
}

void packed_target(struct packed_writer *writer, struct packed_target target, const uint32_t *labels)
{
    *array_push(writer->targets, writer->target_count) = target;
    for (uint32_t i = 0; labels && i < target.labels; i++)
        *array_push(writer->labels, writer->label_count) = labels[i];
}

static enum status write_targets(struct packed_writer *writer)
{
    struct packed_targets *targets = &writer->header.targets;
    size_t bytes = writer->target_count * sizeof *writer->targets;
    bool masks = writer->mask_count > 0;
    size_t rest = masks ? writer->mask_count * sizeof *writer->masks
                        : writer->label_count * sizeof *writer->labels;
    const void *behind = masks ? (const void *)writer->masks : writer->labels;
    if (writer->target_count == 0) return OK;
    targets->at = writer->at;
    targets->bytes = bytes + rest;
    targets->crc = crc32c(crc32c(0, writer->targets, bytes), behind, rest);
    TRY(packed_append(writer, writer->targets, bytes));
    return packed_append(writer, behind, rest);
}

/* The size of all images, as long as they share one. */
static void keep_size(struct packed_header *header, const struct packed_entry *entry)
{
    bool raw = entry->kind == PACKED_RAW;
    if (header->count == 0 && raw) {
        header->h = entry->h;
        header->w = entry->w;
    } else if (!raw || header->h != entry->h || header->w != entry->w) {
        header->h = header->w = 0;
    }
}

static enum status put_bytes(struct packed_writer *writer, struct packed_entry *entry, const void *bytes,
                             size_t count)
{
    if (count > UINT32_MAX) return fail(BAD_DATA, "%s: an image exceeds 4 GiB", writer->path);
    TRY(packed_align(writer));
    entry->at = writer->at;
    entry->bytes = (uint32_t)count;
    entry->crc = crc32c(0, bytes, count);
    return packed_append(writer, bytes, count);
}

enum status packed_add(struct packed_writer *writer, struct packed_entry entry, const void *bytes,
                       size_t count)
{
    TRY(put_bytes(writer, &entry, bytes, count));
    keep_size(&writer->header, &entry);
    *array_push(writer->entries, writer->header.count) = entry;
    return OK;
}

enum status packed_mask(struct packed_writer *writer, const void *bytes, size_t count)
{
    struct packed_entry entry = {.kind = PACKED_FILE};
    TRY(put_bytes(writer, &entry, bytes, count));
    *array_push(writer->masks, writer->mask_count) = entry;
    return OK;
}

enum status packed_finish(struct packed_writer *writer)
{
    struct packed_header *header = &writer->header;
    size_t index_bytes = header->count * sizeof *writer->entries;
    TRY(packed_align(writer));
    header->index_at = writer->at;
    header->index_crc = crc32c(0, writer->entries, index_bytes);
    TRY(packed_append(writer, writer->entries, index_bytes));
    TRY(write_targets(writer));
    header->names_at = writer->at;
    TRY(packed_append(writer, writer->names, header->names_bytes));
    header->file_bytes = writer->at;
    header->crc = crc32c(0, header, offsetof(struct packed_header, crc));
    if (fseek(writer->file, 0, SEEK_SET) != 0 || fwrite(header, sizeof *header, 1, writer->file) != 1 ||
        fflush(writer->file) != 0 || fsync(fileno(writer->file)) != 0)
        return cannot_write(writer);
    return OK;
}

void packed_free(struct packed_writer *writer)
{
    if (!writer) return;
    if (writer->file) fclose(writer->file);
    free(writer->path);
    free(writer->entries);
    free(writer->targets);
    free(writer->labels);
    free(writer->masks);
    free(writer->names);
    free(writer);
}

static bool read_header(const char *path, struct packed_header *header)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool good = file >= 0 && pread(file, header, sizeof *header, 0) == sizeof *header;
    if (file >= 0) close(file);
    return good;
}

static bool replace_header(const char *path, const struct packed_header *header)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    bool good = file >= 0 && pwrite(file, header, sizeof *header, 0) == sizeof *header && fsync(file) == 0;
    int why = errno;
    if (file >= 0) close(file);
    errno = why;
    return good;
}

/* FNV-1a: two sets of one id have, but for an accident in 2^64, the same headers and so the same images. */
static uint64_t add_to_id(uint64_t id, const struct packed_header *header)
{
    const uint8_t *bytes = (const uint8_t *)header;
    for (size_t i = 0; i < sizeof *header; i++) id = (id ^ bytes[i]) * UINT64_C(0x100000001b3);
    return id;
}

enum status packed_join(char *const *paths, int count)
{
    uint64_t id = UINT64_C(0xcbf29ce484222325);
    struct packed_header header;
    for (int i = 0; i < count; i++) {
        if (!read_header(paths[i], &header))
            return fail(FAILED, "%s: cannot be read: %s", paths[i], strerror(errno));
        id = add_to_id(id, &header);
    }
    for (int i = 0; i < count; i++) {
        bool good = read_header(paths[i], &header);
        header.set = (struct packed_set){.id = id, .number = (uint32_t)i, .count = (uint32_t)count};
        header.crc = crc32c(0, &header, offsetof(struct packed_header, crc));
        if (!good || !replace_header(paths[i], &header))
            return fail(FAILED, "%s: cannot be written: %s", paths[i], strerror(errno));
    }
    return OK;
}

bool packed_set_of(const char *path, struct packed_set *set)
{
    struct packed_header header;
    size_t digit = strlen(PACKED_MAGIC) - 1;
    bool known = read_header(path, &header) && memcmp(header.magic, PACKED_MAGIC, digit) == 0 &&
                 (header.magic[digit] == PACKED_MAGIC[digit] || header.magic[digit] == PACKED_TARGETS);
    if (!known || crc32c(0, &header, offsetof(struct packed_header, crc)) != header.crc) return false;
    *set = header.set;
    return true;
}
