/* TIFF files, with all that augmentation does to them, and their channels as they are. */
#include "fuzz_images.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct image image = {0};
    struct reason reason = fuzz_reason();
    if (image_sniff(data, size) != IMAGE_TIFF) return 0;
    fuzz_image_file(data, size);
    if (!image_decode(data, size, (struct image_options){.channels = 0}, NULL, &image, &reason))
        fuzz_check_reason(&reason);
    else
        fuzz_must(image.c >= 1 && image.c <= IMAGE_BANDS_MAX && image.h >= 1 && image.w >= 1);
    image_free(&image);
    return 0;
}
