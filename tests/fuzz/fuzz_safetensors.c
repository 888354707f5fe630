/* Weights of strangers: the header, the tensors, and a network that they may be for. */
#include "fuzz.h"

#include <stdlib.h>

#include "base/memory.h"
#include "fuzz_network.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    fuzz_network();
    return 0;
}

static void read_entries(const struct safetensors *file, int64_t size)
{
    struct reason reason = fuzz_reason();
    for (int i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        fuzz_must(entry->begin >= 0 && entry->begin <= entry->end && entry->end <= size);
        fuzz_must(entry->end - entry->begin ==
                  shape_count(entry->shape) * (int64_t)dtype_bytes(entry->dtype));
        fuzz_must(safetensors_find(file, entry->name) == i);
        char *values = memory_new((size_t)shape_count(entry->shape) + 1, dtype_bytes(entry->dtype));
        if (!safetensors_read(file, i, values, &reason)) fuzz_check_reason(&reason);
        free(values);
    }
}

static void read_floats(const char *path)
{
    struct reason reason = fuzz_reason();
    struct weights_file file;
    fuzz_must(weights_file_open(path, &file, &reason));
    for (int i = 0; i < file.count; i++) {
        float *values = memory_new((size_t)shape_count(file.entries[i].shape) + 1, sizeof *values);
        if (!weights_read(&file, i, values, &reason)) fuzz_check_reason(&reason);
        free(values);
    }
    weights_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_write("fuzz.safetensors", data, size);
    struct safetensors file;
    struct reason reason = fuzz_reason();
    char **names;
    int count, h, w, channels;
    bool good = safetensors_open(path, &file, &reason);
    if (good) {
        read_entries(&file, (int64_t)size);
        if (!safetensors_complete(&file, &reason)) fuzz_check_reason(&reason);
        checkpoint_class_names(&file, &names, &count);
        text_list_free(names, (size_t)count);
        if (!checkpoint_input(&file, &h, &w, &channels, &reason)) fuzz_check_reason(&reason);
        safetensors_close(&file);
        read_floats(path);
    } else {
        fuzz_check_reason(&reason);
    }
    static char *const known[] = {"0", "1", "2"};
    const struct weights_options options = {
        .fine_tuned = size % 2, .encoder = size % 4 == 1, .resized = size % 5 == 0, .lenient = size % 3 == 0,
        .class_names = known, .classes = 3,
    };
    bool loaded = fuzz_good(weights_load(path, &options, &fuzz_network()->store), "fuzz.safetensors");
    fuzz_must(good || !loaded);
    return 0;
}
