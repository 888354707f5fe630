/* IDX files, gzipped or not: two bytes say how long the images' file is, and the labels' follows. */
#include "fuzz_images.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    size_t images = data[0] | (size_t)data[1] << 8;
    data += 2;
    size -= 2;
    if (images > size) images = size;
    fuzz_write("train-images-idx3-ubyte", data, images);
    fuzz_write("train-labels-idx1-ubyte", data + images, size - images);
    const struct dataset_options options = {.path = fuzz_folder(), .split = SPLIT_TRAIN};
    fuzz_dataset("mnist", &options, fuzz_folder());
    return 0;
}
