/* metrics.jsonl as a resumed run finds it: what is beyond the checkpoint, or torn by a crash, is cut off. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/metrics.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

static char *contents(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    fuzz_must(file);
    char *text = memory_new(1 << 20, 1);
    *size = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_write("metrics.jsonl", data, size);
    fuzz_good(metrics_cut(&directory_working, path, 10, 2), "metrics.jsonl");
    size_t once, twice;
    char *first = contents(path, &once);
    fuzz_must(once <= size && (once == 0 || first[once - 1] == '\n'));
    fuzz_good(metrics_cut(&directory_working, path, 10, 2), "metrics.jsonl");
    char *second = contents(path, &twice);
    fuzz_must(once == twice && memcmp(first, second, once) == 0);
    free(first);
    free(second);
    return 0;
}
