/* CIFAR's files: a byte says how long the list of class names is, and records follow it. */
#include "fuzz_images.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    size_t names = data[0];
    data++;
    size--;
    if (names > size) names = size;
    fuzz_write("batches.meta.txt", data, names);
    fuzz_write("fine_label_names.txt", data, names);
    fuzz_write("test_batch.bin", data + names, size - names);
    fuzz_write("test.bin", data + names, size - names);
    const struct dataset_options options = {.path = fuzz_folder(), .split = SPLIT_VAL};
    fuzz_dataset("cifar10", &options, fuzz_folder());
    fuzz_dataset("cifar100", &options, fuzz_folder());
    return 0;
}
