/* Files of torch.save by strangers: as they are or, if they begin with another byte than a zip archive, as
 * the pickle of an archive with correct checksums. */
#include "fuzz.h"

#include <stdlib.h>

#include "base/memory.h"
#include "format/weights_file.h"
#include "tests/support/torch_case.h"

#define STORAGES 3
#define STORAGE_BYTES 64

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

static const char *write_archive(const uint8_t *data, size_t size)
{
    struct archive archive = {0};
    archive_add(&archive, "net/data.pkl", data, size);
    for (int i = 0; i < STORAGES; i++) {
        const char storage[STORAGE_BYTES] = {(char)i, 1, 2, 3};
        char *name = text_format("net/data/%d", i);
        archive_add(&archive, name, storage, sizeof storage);
        free(name);
    }
    archive_end(&archive);
    const char *path = fuzz_write("fuzz.pth", archive.content.data, archive.content.count);
    archive_free(&archive);
    return path;
}

/* Tensors that repeat their elements are larger than the file. */
static void read_entry(const struct weights_file *file, int entry)
{
    struct reason reason = fuzz_reason();
    const struct weights_entry *of = &file->entries[entry];
    int64_t count = shape_count(of->shape);
    fuzz_must(count >= 0);
    fuzz_must(weights_file_find(file, of->name) == entry);
    char *data = memory_new((size_t)count + 1, dtype_bytes(of->dtype));
    if (!weights_file_read(file, entry, data, &reason)) fuzz_check_reason(&reason);
    free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool archive = size > 0 && data[0] == 'P';
    const char *path = archive ? fuzz_write("fuzz.pth", data, size) : write_archive(data, size);
    struct weights_file file;
    struct reason reason = fuzz_reason();
    if (!weights_file_open(path, &file, &reason)) {
        fuzz_check_reason(&reason);
        return 0;
    }
    for (int i = 0; i < file.count && i < 20; i++) read_entry(&file, i);
    weights_file_close(&file);
    return 0;
}
