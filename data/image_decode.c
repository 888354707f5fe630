/* image_decode.c: decodes an image file of any type and applies its orientation. */
#include "data/orientation.h"

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

typedef bool whole_decoder(const uint8_t *bytes, size_t count, int channels,
                           const struct image_choice *choice, struct image *image, struct reason *reason);

static bool decode_turned(whole_decoder *decode, const uint8_t *bytes, size_t count, int channels,
                          struct turned *turned, struct image *image, struct reason *reason)
{
    const struct image_choice choice = {choose_turned, turned};
    return decode(bytes, count, channels, turned->choice ? &choice : NULL, image, reason) &&
           orientation_turn(image, turned->orientation, reason);
}

bool image_decode(const uint8_t *bytes, size_t count, struct image_options options,
                  const struct image_choice *choice, struct image *image, struct reason *reason)
{
    if (options.channels != 1 && options.channels != 3)
        return because(reason, "image files have 1 or 3 channels, not the expected %d", options.channels);
    struct turned turned = {choice, 1};
    switch (image_sniff(bytes, count)) {
    case IMAGE_PNG:
        if (!options.ignore_orientation) turned.orientation = orientation_of_png(bytes, count);
        return decode_turned(image_decode_png, bytes, count, options.channels, &turned, image, reason);
    case IMAGE_JPEG: return image_decode_jpeg(bytes, count, options, choice, image, reason);
    case IMAGE_WEBP:
        if (!options.ignore_orientation) turned.orientation = orientation_of_webp(bytes, count);
        return decode_turned(image_decode_webp, bytes, count, options.channels, &turned, image, reason);
    case IMAGE_UNKNOWN: break;
    }
    return because(reason, count ? "neither PNG, JPEG nor WebP by its first bytes" : "empty");
}
