#include "evaluate/mask_strip.h"

#include <string.h>

#include "data/augment/augment.h"
#include "data/augment/resize.h"

#define PARTS 4
#define GAP 4                  /* white pixels between parts */

struct strip {
    struct image image, truth, predicted, drawn;
    struct image *out;
};

static void paste(const struct strip *strip, int part)
{
    const struct image *drawn = &strip->drawn;
    size_t stride = 3 * (size_t)strip->out->w, left = 3 * (size_t)part * (size_t)(drawn->w + GAP);
    for (size_t y = 0; y < (size_t)drawn->h; y++)
        memcpy(strip->out->pixels + y * stride + left, drawn->pixels + y * 3 * (size_t)drawn->w,
               3 * (size_t)drawn->w);
}

/* Classes in another size, each pixel the nearest one. */
static bool shrink_classes(const uint8_t *classes, const struct cut *cut, struct image *out)
{
    struct reason unsaid;
    const struct image whole = {.h = cut->from.h, .w = cut->from.w, .c = 1, .pixels = (uint8_t *)classes};
    if (!image_resize_buffer(out, cut->h, cut->w, 1, &unsaid)) return false;
    augment_mask(cut, &whole, out->pixels);
    return true;
}

static bool shrink(const struct whole_image *whole, int side, struct strip *strip)
{
    struct reason unsaid;
    const struct image *image = &whole->image;
    int larger = whole->h > whole->w ? whole->h : whole->w;
    double scale = larger > side ? (double)side / larger : 1;
    int h = (int)(whole->h * scale + 0.5), w = (int)(whole->w * scale + 0.5);
    if (h < 1) h = 1;
    if (w < 1) w = 1;
    const struct resizing resizing = {{0, 0, image->h, image->w}, h, w, {0, 0, h, w},
                                      RESIZE_BILINEAR};
    const struct cut cut = {.from = {.h = whole->h, .w = whole->w}, h, w, .window = {.h = h, .w = w}};
    return resize_image(image, &resizing, &strip->image, &unsaid) &&
           shrink_classes(whole->mask.pixels, &cut, &strip->truth) &&
           shrink_classes(whole->classes, &cut, &strip->predicted) &&
           image_resize_buffer(strip->out, h, PARTS * w + (PARTS - 1) * GAP, 3, &unsaid);
}

static bool draw(const struct mask_palette *palette, struct strip *strip)
{
    struct reason unsaid;
    struct image none = {0}, *drawn = &strip->drawn;
    size_t pixels = (size_t)strip->image.h * (size_t)strip->image.w;
    memset(strip->out->pixels, 255, 3 * (size_t)strip->out->h * (size_t)strip->out->w);
    if (!image_resize_buffer(&none, strip->image.h, strip->image.w, 1, &unsaid)) return false;
    memset(none.pixels, MASK_IGNORE, pixels);
    const struct image *over[] = {&none, &strip->truth, &strip->predicted};
    bool good = true;
    for (int i = 0; i < PARTS - 1 && good; i++)
        if ((good = mask_overlay(&strip->image, over[i], palette, drawn, &unsaid))) paste(strip, i);
    good = good && mask_difference(&strip->image, &strip->truth, &strip->predicted, drawn, &unsaid);
    if (good) paste(strip, PARTS - 1);
    image_free(&none);
    return good;
}

/* A deep image becomes bytes. */
static bool reduce(struct image *image, const struct image_range *range)
{
    struct image bytes = {0};
    struct reason unsaid;
    if (!image->deep) return true;
    bool good = image_reduce(image, range, &bytes, &unsaid);
    image_free(image);
    *image = bytes;
    return good;
}

void mask_strip_draw(const struct whole_image *image, const struct mask_classes *classes,
                     const struct image_range *range, int side, struct image *picture)
{
    struct strip strip = {.out = picture};
    struct mask_palette palette;
    mask_palette_of(classes, &palette);
    bool good = (image->image.c == 1 || image->image.c == 3) && shrink(image, side, &strip) &&
                reduce(&strip.image, range) && draw(&palette, &strip);
    image_free(&strip.image);
    image_free(&strip.truth);
    image_free(&strip.predicted);
    image_free(&strip.drawn);
    if (!good) image_free(picture);
}
