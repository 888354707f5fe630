/* Listings of image folders that were remembered: the file in the cache folder is the input. Its checksum,
 * the name of the root and the states of folders, which nobody can know beforehand, are put right first. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "data/formats/listing.h"
#include "fuzz_images.h"

/* Offsets in a file's header. */
#define FOLDERS_AT 8
#define FILES_AT 16
#define BYTES_AT 24
#define ROOT_AT 32
#define CRC_AT 64
#define HEADER_BYTES 72

static struct {
    char *root, *cache, *real, *index;
} places;

static char *make_folder(const char *parent, const char *name)
{
    char *path = text_format("%s/%s", parent, name);
    fuzz_must(mkdir(path, 0700) == 0);
    return path;
}

/* Where listing_remember leaves it: the only file there. */
static char *find_index(const char *cache)
{
    struct dirent **entries;
    char *path = NULL;
    int count = scandir(cache, &entries, NULL, NULL);
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.' && !path) path = text_format("%s/%s", cache, entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return path;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    places.root = make_folder(fuzz_folder(), "root");
    places.cache = make_folder(fuzz_folder(), "amptrain");
    places.real = realpath(places.root, NULL);
    char *one = make_folder(places.root, "one"), *two = make_folder(places.root, "two");
    fuzz_write("root/one/a.png", "\x89PNG\r\n\x1a\n", 8);
    fuzz_write("root/two/b.png", "\x89PNG\r\n\x1a\n", 8);
    struct listing listing = {0};
    struct reason reason;
    fuzz_must(listing_make(places.root, NULL, &listing, &reason));
    listing.began += INT64_C(10000000000);
    listing_remember(places.root, places.cache, &listing);
    listing_free(&listing);
    places.index = find_index(places.cache);
    fuzz_must(places.index && places.real);
    setenv("XDG_CACHE_HOME", fuzz_folder(), 1);
    free(one);
    free(two);
    return 0;
}

static uint64_t number_at(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void set_number(uint8_t *bytes, uint64_t value) { memcpy(bytes, &value, sizeof value); }

/* The states of folders that are there, as far as the numbers in the header lead to them. */
static void repair_folders(uint8_t *bytes, size_t size)
{
    uint64_t folders = number_at(bytes + FOLDERS_AT), files = number_at(bytes + FILES_AT);
    if (folders > size || files > size) return;
    uint64_t names = HEADER_BYTES + folders * sizeof(struct listed_folder) + files * sizeof(struct listed);
    for (uint64_t i = 0; i < folders && names < size; i++) {
        struct listed_folder folder;
        uint8_t *at = bytes + HEADER_BYTES + i * sizeof folder;
        memcpy(&folder, at, sizeof folder);
        if (folder.name >= size - names) continue;
        size_t name = folder.name, length = strnlen((char *)bytes + names + name, size - names - name);
        char *path = text_format("%s/%.*s", places.root, (int)length, (char *)bytes + names + name);
        folder = listing_state(path);
        folder.name = name;
        memcpy(at, &folder, sizeof folder);
        free(path);
    }
}

/* The root's name is appended to the names; the file gets that much longer. */
static size_t repair(uint8_t *bytes, size_t size)
{
    size_t more = strlen(places.real) + 1;
    if (size < HEADER_BYTES) return size;
    repair_folders(bytes, size);
    memcpy(bytes + size, places.real, more);
    set_number(bytes + ROOT_AT, number_at(bytes + BYTES_AT));
    set_number(bytes + BYTES_AT, number_at(bytes + BYTES_AT) + more);
    uint32_t crc = 0;
    memcpy(bytes + CRC_AT, &crc, sizeof crc);
    crc = crc32c(0, bytes, size + more);
    memcpy(bytes + CRC_AT, &crc, sizeof crc);
    return size + more;
}

static void write_index(const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(places.index, "wb");
    fuzz_must(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

/* Paths of a stored listing stay inside the root. */
static void recall(void)
{
    struct listing listing = {0};
    if (!listing_recall(places.root, places.cache, &listing)) return;
    fuzz_must(listing.class_count > 0);
    for (size_t i = 0; i < listing.count; i++) {
        fuzz_must(listing.files[i].name < listing.bytes && (int)listing.files[i].class < listing.class_count);
        char *name = text_format("/%s/", listing.names + listing.files[i].name);
        fuzz_must(name[1] != '/' && !strstr(name, "/../"));
        free(name);
    }
    listing_free(&listing);
    const struct dataset_options options = {.path = places.root};
    fuzz_dataset("folder", &options, places.root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = memory_new(size + strlen(places.real) + 1, 1);
    memcpy(bytes, data, size);
    write_index(bytes, size);
    recall();
    size = repair(bytes, size);
    write_index(bytes, size);
    recall();
    free(bytes);
    return 0;
}
