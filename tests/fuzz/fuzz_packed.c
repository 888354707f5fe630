/* Packed data sets. Checksums are put right first, so that what is behind them is tried, too. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fuzz_images.h"
#include "fuzz_repair.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = memory_new(size, 1);
    const struct dataset_options options = {.path = fuzz_write("fuzz.pack", data, size)};
    fuzz_dataset("packed", &options, "fuzz.pack");
    memcpy(bytes, data, size);
    fuzz_repair_packed(bytes, size);
    fuzz_write("fuzz.pack", bytes, size);
    fuzz_dataset("packed", &options, "fuzz.pack");
    free(bytes);
    return 0;
}
