/* WebP files, with all that augmentation does to them. */
#include "fuzz_images.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (image_sniff(data, size) == IMAGE_WEBP) fuzz_image_file(data, size);
    return 0;
}
