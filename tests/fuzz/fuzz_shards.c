/* Sets of packed files: the input is a script of how their headers and indices differ from good ones. All
 * checksums are right. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "data/formats/packed.h"
#include "fuzz_images.h"
#include "fuzz_repair.h"

#define SHARDS_MAX 4
#define IMAGES 3
#define EDITS_MAX 8
#define ROOM 4096

/* A good file of raw pixels, and one of PNG files. */
static struct {
    uint8_t bytes[2][ROOM];
    size_t counts[2];
    const char *folder;
} good;

static void make_good(enum packed_kind kind)
{
    static char *const names[] = {"cat", "dog"};
    static const uint8_t pixels[12] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    const char *path = fuzz_write("good", "", 0);
    struct packed_writer *writer;
    fuzz_must(packed_create(path, 1, names, 2, &writer) == OK);
    for (uint32_t i = 0; i < IMAGES; i++) {
        struct packed_entry entry = {.kind = kind, .label = i % 2, .h = kind ? 0 : 3, .w = kind ? 0 : 4};
        fuzz_must(packed_add(writer, entry, pixels, sizeof pixels) == OK);
    }
    fuzz_must(packed_finish(writer) == OK);
    packed_free(writer);
    FILE *file = fopen(path, "rb");
    good.counts[kind] = fread(good.bytes[kind], 1, ROOM, file);
    fclose(file);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    make_good(PACKED_RAW);
    make_good(PACKED_FILE);
    char *folder = text_format("%s/set", fuzz_folder());
    fuzz_must(mkdir(folder, 0700) == 0);
    good.folder = folder;
    return 0;
}

/* One number of the header, or of an image's entry, becomes another; the class names, a byte. */
static void edit(struct fuzz_script *script, uint8_t *bytes, size_t size)
{
    static const size_t fields[] = {
        offsetof(struct packed_header, count),    offsetof(struct packed_header, index_at),
        offsetof(struct packed_header, names_at), offsetof(struct packed_header, names_bytes),
        offsetof(struct packed_header, set.id),
    };
    struct packed_header header;
    uint64_t wide = 0;
    uint32_t narrow = 0;
    memcpy(&header, good.bytes[0], sizeof header);
    uint8_t where = fuzz_byte(script);
    if (where < 5) {
        memcpy(&wide, bytes + fields[where], 8);
        wide = fuzz_number(script, wide);
        memcpy(bytes + fields[where], &wide, 8);
    } else if (where < 32) {
        memcpy(&narrow, bytes + 4 * where, 4);
        narrow = (uint32_t)fuzz_number(script, narrow);
        memcpy(bytes + 4 * where, &narrow, 4);
    } else {
        size_t at = header.index_at + where % ((size - header.index_at) / 4) * 4;
        memcpy(&narrow, bytes + at, 4);
        narrow = (uint32_t)fuzz_number(script, narrow);
        memcpy(bytes + at, &narrow, 4);
    }
}

static void write_shard(struct fuzz_script *script, uint32_t number, uint32_t count)
{
    uint8_t bytes[ROOM];
    int kind = fuzz_byte(script) % 8 == 0;
    size_t size = good.counts[kind];
    memcpy(bytes, good.bytes[kind], size);
    struct packed_set set = {.id = 7, .number = number, .count = count};
    memcpy(bytes + offsetof(struct packed_header, set), &set, sizeof set);
    for (int i = fuzz_byte(script) % EDITS_MAX; i > 0; i--) edit(script, bytes, size);
    size = fuzz_number(script, size) % (size + 1);
    fuzz_repair_packed(bytes, size);
    char name[32];
    snprintf(name, sizeof name, "set/%u.pack", number);
    fuzz_write(name, bytes, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_script script = {data, data + size};
    uint32_t count = 1 + fuzz_byte(&script) % SHARDS_MAX;
    for (uint32_t i = 0; i < count; i++) write_shard(&script, i, count);
    const struct dataset_options options = {.path = good.folder};
    fuzz_dataset("packed", &options, "set");
    for (uint32_t i = 0; i < count; i++) {
        char *path = text_format("%s/%u.pack", good.folder, i);
        unlink(path);
        free(path);
    }
    return 0;
}
