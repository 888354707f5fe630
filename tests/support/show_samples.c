/* show_samples.c: show_samples FILE CHANNELS [BAND...]: the samples of an image as they are decoded: a line with
 * height, width, channels, and deep or bytes; then all as floats of the machine, for other programs to compare.
 * CHANNELS 0: all that the file has. BAND: from 1. */
#include <stdio.h>
#include <stdlib.h>

#include "data/image/image.h"

int main(int count, char **arguments)
{
    struct image image = {0};
    struct reason reason;
    struct image_options options = {.ignore_orientation = true};
    if (count < 3 || count > 3 + IMAGE_BANDS_MAX) return 2;
    options.channels = atoi(arguments[2]);
    for (int i = 3; i < count; i++)
        options.bands.list[options.bands.count++] = (uint8_t)(atoi(arguments[i]) - 1);
    options.bands.strict = options.bands.count > 0;
    if (!image_load(arguments[1], options, NULL, &image, &reason)) {
        fprintf(stderr, "%s\n", reason.text);
        return 1;
    }
    printf("%d %d %d %s\n", image.h, image.w, image.c, image.deep ? "deep" : "bytes");
    size_t samples = (size_t)image.h * (size_t)image.w * (size_t)image.c;
    for (size_t i = 0; i < samples; i++) {
        float sample = image.deep ? image_numbers(&image)[i] : image.pixels[i];
        fwrite(&sample, sizeof sample, 1, stdout);
    }
    image_free(&image);
    return fflush(stdout) != 0;
}
