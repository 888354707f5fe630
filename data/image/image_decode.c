/* image_decode.c: decodes an image file of any type and applies its orientation. */
#include "data/image/orientation.h"

/* For decoders of whole images as stored: the choice refers to the oriented image. */
struct turned {
    const struct image_choice *choice;
    int orientation;
};

static bool choose_turned(void *context, int h, int w, struct box *part, struct reason *reason)
{
    const struct turned *turned = context;
    struct box all = orientation_upright(turned->orientation, (struct box){.h = h, .w = w}, h, w);
    return turned->choice->choose(turned->choice->context, all.h, all.w, part, reason);
}

static bool refuse_unknown(const uint8_t *bytes, size_t count, struct reason *reason)
{
    const char *foreign = image_foreign(bytes, count);
    if (foreign) return because(reason, "%s is not read; `mogrify -format png FILE` converts it", foreign);
    return because(reason, count ? "neither PNG, JPEG, WebP nor TIFF by its first bytes" : "empty");
}

static bool decode_stored(const uint8_t *bytes, size_t count, struct image_options options,
                          const struct image_choice *choice, struct image *image, struct reason *reason)
{
    bool (*decode)(const uint8_t *, size_t, int, const struct image_choice *, struct image *,
                   struct reason *) = NULL;
    struct turned turned = {choice, 1};
    const struct image_choice upright = {choose_turned, &turned};
    switch (image_sniff(bytes, count)) {
    case IMAGE_JPEG: return image_decode_jpeg(bytes, count, options, choice, image, reason);
    case IMAGE_TIFF: return image_decode_tiff(bytes, count, options, choice, image, reason);
    case IMAGE_UNKNOWN: return refuse_unknown(bytes, count, reason);
    case IMAGE_PNG:
        decode = image_decode_png;
        if (!options.ignore_orientation) turned.orientation = orientation_of_png(bytes, count);
        break;
    case IMAGE_WEBP:
        decode = image_decode_webp;
        if (!options.ignore_orientation) turned.orientation = orientation_of_webp(bytes, count);
        break;
    }
    return decode(bytes, count, options.channels, choice ? &upright : NULL, image, reason) &&
           orientation_turn(image, turned.orientation, reason);
}

/* Bytes for 1 or 3 channels are converted row by row; others when all are there. */
bool image_decode(const uint8_t *bytes, size_t count, struct image_options options,
                  const struct image_choice *choice, struct image *image, struct reason *reason)
{
    struct image_options stored = options;
    bool own = options.bands.strict || (options.channels != 1 && options.channels != 3);
    if (own) stored.channels = 0;
    image->deep = image->alpha = false;
    image->pages = 0;
    return decode_stored(bytes, count, stored, choice, image, reason) &&
           image_fit_channels(image, &options, reason);
}
