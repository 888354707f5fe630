/* The digits' file of numbers, gzipped or not. */
#include "fuzz_images.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_write("digits.csv", data, size);
    const struct dataset_options options = {.path = path, .split = size % 2 ? SPLIT_TRAIN : SPLIT_VAL};
    fuzz_dataset("digits", &options, "digits.csv");
    return 0;
}
