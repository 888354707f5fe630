/* image_channels.c: channels of images as stored become those asked for, and deep images bytes. */
#include <stdlib.h>
#include <string.h>

#include "data/image/image.h"

static size_t pixels_of(const struct image *image)
{
    return (size_t)image->h * (size_t)image->w;
}

/* Channel i of the result is the image's channel list[i]. */
static bool pick(struct image *image, const uint8_t *list, int count, struct reason *reason)
{
    struct image from = *image, to = {0};
    size_t sample = image->deep ? sizeof(float) : 1, stride = image_pixel_bytes(image);
    struct box part = {.h = image->h, .w = image->w};
    bool room = image->deep ? image_resize_deep(&to, part.h, part.w, count, image->low, image->high, reason)
                            : image_resize_buffer(&to, part.h, part.w, count, reason);
    if (!room) return false;
    uint8_t *out = to.pixels;
    for (size_t i = 0; i < pixels_of(image); i++)
        for (int k = 0; k < count; k++, out += sample)
            memcpy(out, from.pixels + i * stride + list[k] * sample, sample);
    *image = from;
    image->c = count;
    image->pixels = to.pixels;
    image->capacity = to.capacity;
    image->alpha = false;
    free(from.pixels);
    return true;
}

/* Colours and alpha over white. */
static void over_white(struct image *image)
{
    int colours = --image->c;
    size_t pixels = pixels_of(image);
    image->alpha = false;
    if (!image->deep) {
        image_over_white(image->pixels, image->pixels, pixels, colours);
        return;
    }
    float *from = image_numbers(image), *to = from, white = image->high;
    for (size_t i = 0; i < pixels; i++, from += colours + 1) {
        float alpha = (from[colours] - image->low) / (image->high - image->low);
        for (int k = 0; k < colours; k++) *to++ = from[k] * alpha + white * (1 - alpha);
    }
}

/* The weights of image_grey_from_rgb. */
static void weigh_grey(struct image *image)
{
    size_t pixels = pixels_of(image);
    float *numbers = image_numbers(image);
    image->c = 1;
    if (!image->deep) image_grey_from_rgb(image->pixels, image->pixels, pixels);
    for (size_t i = 0; image->deep && i < pixels; i++)
        numbers[i] = (19595 * numbers[3 * i] + 38470 * numbers[3 * i + 1] + 7471 * numbers[3 * i + 2]) /
                     65536;
}

static bool pick_bands(struct image *image, const struct image_options *options, struct reason *reason)
{
    const struct image_bands *bands = &options->bands;
    for (int i = 0; i < bands->count; i++)
        if (bands->list[i] >= image->c)
            return because(reason, "has %d channel%s, but data.bands asks for number %d", image->c,
                           image->c == 1 ? "" : "s", bands->list[i] + 1);
    return pick(image, bands->list, bands->count, reason);
}

bool image_fit_channels(struct image *image, const struct image_options *options, struct reason *reason)
{
    static const uint8_t first[IMAGE_BANDS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const uint8_t grey[3] = {0, 0, 0};
    int channels = options->channels, own = image->c;
    if (options->bands.count > 0) return pick_bands(image, options, reason);
    bool colours = channels == 1 || channels == 3;
    if (image->c != channels && image->alpha && colours) over_white(image);
    if (channels == 0 || image->c == channels) return true;
    if (image->c == 3 && channels == 1) return weigh_grey(image), true;
    if (options->bands.strict && image->c > channels) return pick(image, first, channels, reason);
    if (!options->bands.strict && image->c == 1 && channels == 3) return pick(image, grey, 3, reason);
    return because(reason, "has %d channel%s, not %d%s", own, own == 1 ? "" : "s", channels,
                   options->bands.strict ? "" : "; data.channels or data.bands says which are used");
}

struct image_range image_range_of(const struct image *image, const struct image_range *range)
{
    if (range->set) return *range;
    return image->deep ? (struct image_range){true, image->low, image->high}
                       : (struct image_range){true, 0, 255};
}

bool image_reduce(const struct image *image, const struct image_range *range, struct image *to,
                  struct reason *reason)
{
    struct box part = {image->top, image->left, image->h, image->w};
    struct image_range own = image_range_of(image, range);
    const float *from = image_numbers(image);
    size_t count = pixels_of(image) * (size_t)image->c;
    double scale = 255 / (own.high - own.low);
    if (!image_resize_part(to, image->full_h, image->full_w, part, image->c, reason)) return false;
    for (size_t i = 0; i < count; i++) {
        double value = (from[i] - own.low) * scale;
        to->pixels[i] = value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)(value + 0.5);
    }
    return true;
}
