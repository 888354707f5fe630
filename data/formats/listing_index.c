/* listing_index.c: cached listings, one file for each root folder. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/directory.h"
#include "base/memory.h"
#include "data/formats/listing.h"

#define MAGIC "AMPLIST4"
/* A folder that changed this shortly before it was listed may change again without a new timestamp. */
#define SETTLED_NANOSECONDS 2000000000
#define FILE_MAX_BYTES ((int64_t)4 << 30)

/* After it come folders, files, names; the last names are the root's and those of the classes. */
struct index_header {
    char magic[8];
    uint64_t folder_count, count, bytes;
    uint64_t root, classes;    /* where their names begin in `names`; the classes' follow each other */
    int64_t ignored, foreign, stray;
    uint64_t example;          /* where it begins in `names`; empty: none */
    uint64_t class_count;
    uint32_t crc, unused;      /* CRC-32C of all of the file, taken while this is 0 */
};

/* The index file for a root, and the root's canonical path. NULL: it has none. */
static char *index_path(const char *root, const char *cache, char **real)
{
    *real = realpath(root, NULL);
    if (!*real) return NULL;
    uint32_t low = crc32c(0, *real, strlen(*real)), high = crc32c(low ^ 0x5bd1e995u, *real, strlen(*real));
    return text_format("%s/folder-%08x%08x.list", cache, high, low);
}

/* `more`: names that follow the listing's. */
static uint32_t index_checksum(struct index_header header, const struct listing *listing,
                               const struct listing *more)
{
    header.crc = 0;
    uint32_t crc = crc32c(0, &header, sizeof header);
    crc = crc32c(crc, listing->folders, listing->folder_count * sizeof *listing->folders);
    crc = crc32c(crc, listing->files, listing->count * sizeof *listing->files);
    crc = crc32c(crc, listing->names, listing->bytes);
    return crc32c(crc, more->names, more->bytes);
}

static bool has_settled(const struct listing *listing)
{
    int64_t latest = listing->began - SETTLED_NANOSECONDS;
    for (size_t i = 0; i < listing->folder_count; i++) {
        const struct listed_folder *folder = &listing->folders[i];
        if (folder->changed == 0 || folder->changed > latest || folder->modified > latest) return false;
    }
    return true;
}

static bool write_index(FILE *file, const struct index_header *header, const struct listing *listing,
                        const struct listing *more)
{
    return fwrite(header, sizeof *header, 1, file) == 1 &&
           fwrite(listing->folders, sizeof *listing->folders, listing->folder_count, file) ==
               listing->folder_count &&
           fwrite(listing->files, sizeof *listing->files, listing->count, file) == listing->count &&
           fwrite(listing->names, 1, listing->bytes, file) == listing->bytes &&
           fwrite(more->names, 1, more->bytes, file) == more->bytes;
}

/* Failing to store a listing is not reported: it is created again next time. */
static void write_file(const char *path, const struct index_header *header, const struct listing *listing,
                       const struct listing *more)
{
    char *temporary = text_format("%s.%ld", path, (long)getpid());
    struct reason unsaid;
    FILE *file = directory_stream(&directory_working, temporary, "w", &unsaid);
    bool good = file && write_index(file, header, listing, more);
    if (file && fclose(file) != 0) good = false;
    if (!good || rename(temporary, path) != 0) unlink(temporary);
    free(temporary);
}

void listing_remember(const char *root, const char *cache, const struct listing *listing)
{
    char *real, *path = has_settled(listing) ? index_path(root, cache, &real) : NULL;
    if (!path) return;
    struct listing more = {0};
    struct index_header header = {.folder_count = listing->folder_count, .count = listing->count,
                                  .ignored = listing->ignored, .foreign = listing->foreign,
                                  .stray = listing->stray, .class_count = (uint64_t)listing->class_count};
    memcpy(header.magic, MAGIC, sizeof header.magic);
    header.root = listing->bytes + listing_name(&more, real);
    header.classes = listing->bytes + more.bytes;
    for (int i = 0; i < listing->class_count; i++) listing_name(&more, listing->classes[i]);
    header.example = listing->bytes + more.bytes;
    listing_name(&more, listing->example ? listing->example : "");
    header.bytes = listing->bytes + more.bytes;
    header.crc = index_checksum(header, listing, &more);
    struct reason unsaid;
    if (directory_make(cache, 0700, &unsaid)) write_file(path, &header, listing, &more);
    free(more.names);
    free(path);
    free(real);
}

static bool read_array(FILE *file, void **array, uint64_t count, size_t size, uint64_t most)
{
    if (count > most / size) return false;
    *array = memory_try((size_t)count + 1, size);
    return *array && fread(*array, size, (size_t)count, file) == count;
}

static bool read_index(FILE *file, struct index_header *header, struct listing *listing)
{
    struct stat stat_of;
    if (fstat(fileno(file), &stat_of) != 0 || fread(header, sizeof *header, 1, file) != 1) return false;
    uint64_t most = (uint64_t)stat_of.st_size;
    if (memcmp(header->magic, MAGIC, sizeof header->magic) != 0) return false;
    listing->folder_count = header->folder_count;
    listing->count = header->count;
    listing->bytes = listing->room = header->bytes;
    listing->ignored = header->ignored;
    listing->foreign = header->foreign;
    listing->stray = header->stray;
    size_t folder = sizeof *listing->folders, listed = sizeof *listing->files;
    return read_array(file, (void **)&listing->folders, header->folder_count, folder, most) &&
           read_array(file, (void **)&listing->files, header->count, listed, most) &&
           read_array(file, (void **)&listing->names, header->bytes, 1, most) &&
           index_checksum(*header, listing, &(struct listing){0}) == header->crc;
}

/* True if a name exists and does not refer to anything above the root; the root's own is empty. */
static bool is_name(const struct listing *listing, uint64_t at, bool may_be_root)
{
    if (at >= listing->bytes) return false;
    const char *name = listing->names + at;
    if (*name == '/' || (*name == '\0' && !may_be_root)) return false;
    for (const char *part = name; *part; part += strcspn(part, "/"), part += *part == '/')
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) return false;
    return true;
}

/* A checksum can be forged, so the contents are validated as well. */
static bool makes_sense(const struct index_header *header, const struct listing *listing)
{
    if (listing->bytes == 0 || listing->names[listing->bytes - 1] != '\0') return false;
    if (header->root >= listing->bytes || header->example >= listing->bytes) return false;
    if (header->class_count < 1 || header->class_count > INT_MAX) return false;
    uint64_t at = header->classes, class = 0;
    for (uint64_t i = 0; i < header->class_count; i++) {
        if (!is_name(listing, at, false) || strchr(listing->names + at, '/')) return false;
        at += strlen(listing->names + at) + 1;
    }
    for (size_t i = 0; i < listing->folder_count; i++)
        if (!is_name(listing, listing->folders[i].name, true)) return false;
    for (size_t i = 0; i < listing->count; i++) {
        const struct listed *file = &listing->files[i];
        if (!is_name(listing, file->name, false) || file->class < class) return false;
        class = file->class;
        if (class >= header->class_count) return false;
    }
    return true;
}

static bool is_unchanged(const char *root, const struct listing *listing)
{
    for (size_t i = 0; i < listing->folder_count; i++) {
        const struct listed_folder *then = &listing->folders[i];
        char *path = text_format("%s/%s", root, listing->names + then->name);
        struct listed_folder now = listing_state(path);
        free(path);
        if (now.changed == 0 || now.changed != then->changed || now.modified != then->modified ||
            now.inode != then->inode || now.size != then->size)
            return false;
    }
    return true;
}

static void take_classes(const struct index_header *header, struct listing *listing)
{
    const char *name = listing->names + header->classes;
    listing->classes = memory_new((size_t)header->class_count, sizeof *listing->classes);
    listing->class_count = (int)header->class_count;
    for (int i = 0; i < listing->class_count; i++, name += strlen(name) + 1)
        listing->classes[i] = text_copy(name);
}

bool listing_recall(const char *root, const char *cache, struct listing *listing)
{
    char *real, *path = index_path(root, cache, &real);
    struct reason unsaid;
    FILE *file = NULL;
    if (path) file = directory_stream_within(&directory_working, path, "r", FILE_MAX_BYTES, &unsaid);
    struct listing read = {0};
    struct index_header header;
    bool good = file && read_index(file, &header, &read) && makes_sense(&header, &read) &&
                strcmp(read.names + header.root, real) == 0 && is_unchanged(root, &read);
    if (file) fclose(file);
    if (good) {
        take_classes(&header, &read);
        if (read.ignored > 0) read.example = text_copy(read.names + header.example);
        *listing = read;
    } else {
        listing_free(&read);
    }
    free(path);
    free(real);
    return good;
}
