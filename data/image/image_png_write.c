/* image_png_write.c: writes PNG by libpng. */
#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/image/image.h"

bool image_encode_png(const struct image *image, uint8_t **bytes, size_t *count, struct reason *reason)
{
    png_image png;
    png_alloc_size_t room;
    memset(&png, 0, sizeof png);
    png.version = PNG_IMAGE_VERSION;
    png.width = (png_uint_32)image->w;
    png.height = (png_uint_32)image->h;
    png.format = image->c == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    room = PNG_IMAGE_PNG_SIZE_MAX(png);
    *bytes = memory_try(room, 1);
    if (!*bytes)
        return because(reason, "not enough memory for a PNG file of %dx%d pixels", image->w, image->h);
    if (png_image_write_to_memory(&png, *bytes, &room, 0, image->pixels, 0, NULL)) {
        *count = room;
        return true;
    }
    free(*bytes);
    return because(reason, "PNG: %s", png.message);
}
