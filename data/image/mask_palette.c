#include "data/image/mask_palette.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Pascal VOC's colours: bits of the number, from the lowest on, are the high bits of red, green, blue. */
static void voc_colour(int number, uint8_t rgb[3])
{
    memset(rgb, 0, 3);
    for (int i = 0; i < 8; i++, number >>= 3)
        for (int c = 0; c < 3; c++) rgb[c] |= (uint8_t)((number >> c & 1) << (7 - i));
}

static void set_colour(uint8_t rgb[3], uint32_t value)
{
    for (int c = 0; c < 3; c++) rgb[c] = (uint8_t)(value >> (16 - 8 * c));
}

/* A class has the least of its numbers, if all classes have one below 256, and the colour of its first
 * line. */
void mask_palette_of(const struct mask_classes *classes, struct mask_palette *palette)
{
    int lines[256] = {0};
    bool numbers = classes->by_number, two = classes->classes == 2 && classes->numbers[255] == 1;
    palette->classes = classes->classes;
    for (int i = 0; i < 256; i++) {
        palette->values[i] = (uint8_t)i;
        voc_colour(i, palette->colours[i]);
    }
    if (two) set_colour(palette->colours[1], 0xffffff);
    for (int i = 0; i < classes->classes && numbers; i++) {
        int least = 0;
        while (least < 256 && classes->numbers[least] != i) least++;
        numbers = least < 256;
    }
    for (int i = 255; i >= 0 && numbers; i--)
        if (classes->numbers[i] >= 0) palette->values[classes->numbers[i]] = (uint8_t)i;
    for (size_t i = 0; i < classes->colour_count; i++) {
        const struct mask_colour *colour = &classes->colours[i];
        if (lines[colour->class] != 0 && lines[colour->class] < colour->line) continue;
        lines[colour->class] = colour->line;
        set_colour(palette->colours[colour->class], colour->rgb);
    }
}

/* The mask's values in new memory if they are not its classes' numbers; NULL: they are, or there is no
 * memory. */
static uint8_t *values_of(const struct image *mask, const struct mask_palette *palette, bool *needed)
{
    size_t pixels = (size_t)mask->h * (size_t)mask->w;
    *needed = false;
    for (int i = 0; i < 256; i++) *needed = *needed || palette->values[i] != i;
    uint8_t *values = *needed ? memory_try(pixels, 1) : NULL;
    for (size_t i = 0; values && i < pixels; i++) values[i] = palette->values[mask->pixels[i]];
    return values;
}

static uint8_t largest_of(const uint8_t *values, size_t count)
{
    uint8_t largest = 0;
    for (size_t i = 0; i < count; i++)
        if (values[i] > largest) largest = values[i];
    return largest;
}

bool mask_encode(const struct image *mask, const struct mask_palette *palette, uint8_t **bytes, size_t *count,
                 struct reason *reason)
{
    uint8_t colours[256][3] = {{0}};
    bool needed;
    uint8_t *own = values_of(mask, palette, &needed);
    const uint8_t *values = needed ? own : mask->pixels;
    png_image png = {.version = PNG_IMAGE_VERSION, .format = PNG_FORMAT_RGB_COLORMAP,
                     .width = (png_uint_32)mask->w, .height = (png_uint_32)mask->h};
    if (values) png.colormap_entries = largest_of(values, (size_t)mask->h * (size_t)mask->w) + 1u;
    memcpy(colours[palette->values[MASK_IGNORE]], palette->colours[MASK_IGNORE], 3);
    for (int i = 0; i < palette->classes; i++)
        memcpy(colours[palette->values[i]], palette->colours[i], 3);
    png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(png);
    *bytes = values ? memory_try(room, 1) : NULL;
    if (!*bytes) because(reason, "not enough memory for a PNG file of %dx%d pixels", mask->w, mask->h);
    bool good = *bytes && (png_image_write_to_memory(&png, *bytes, &room, 0, values, 0, colours) ||
                           because(reason, "PNG: %s", png.message));
    free(own);
    *count = room;
    if (!good) free(*bytes);
    return good;
}

static const uint8_t *pixel_of(const struct image *image, size_t pixel, int c)
{
    return image->pixels + pixel * (size_t)image->c + (image->c == 3 ? c : 0);
}

bool mask_overlay(const struct image *image, const struct image *mask, const struct mask_palette *palette,
                  struct image *out, struct reason *reason)
{
    if (!image_resize_buffer(out, image->h, image->w, 3, reason)) return false;
    for (size_t i = 0; i < (size_t)image->h * (size_t)image->w; i++)
        for (int c = 0; c < 3; c++) {
            const uint8_t *colour = palette->colours[mask->pixels[i]];
            bool shown = mask->pixels[i] != MASK_IGNORE && (colour[0] | colour[1] | colour[2]);
            int pixel = *pixel_of(image, i, c);
            out->pixels[3 * i + (size_t)c] = (uint8_t)(shown ? (pixel + colour[c] + 1) / 2 : pixel);
        }
    return true;
}

bool mask_difference(const struct image *image, const struct image *truth, const struct image *predicted,
                     struct image *out, struct reason *reason)
{
    static const uint8_t red[] = {230, 40, 40};
    if (!image_resize_buffer(out, image->h, image->w, 3, reason)) return false;
    for (size_t i = 0; i < (size_t)image->h * (size_t)image->w; i++)
        for (int c = 0; c < 3; c++) {
            bool ignored = truth->pixels[i] == MASK_IGNORE, same = truth->pixels[i] == predicted->pixels[i];
            out->pixels[3 * i + (size_t)c] =
                ignored ? 0 : same ? (uint8_t)(*pixel_of(image, i, c) / 2) : red[c];
        }
    return true;
}
