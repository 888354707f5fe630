/* WebP by libwebp: lossy and lossless images become RGB, over white. Google, WebP Container Specification
 * (RFC 9649). */
#include <webp/decode.h>

#include "data/image/image.h"

static const char *webp_reason(VP8StatusCode status)
{
    switch (status) {
    case VP8_STATUS_OK: break;
    case VP8_STATUS_OUT_OF_MEMORY: return "out of memory";
    case VP8_STATUS_INVALID_PARAM:
    case VP8_STATUS_BITSTREAM_ERROR: return "the file is damaged";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "a feature that libwebp does not know";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA: return "the file is truncated";
    case VP8_STATUS_USER_ABORT: return "decoding was stopped";
    }
    return "the file cannot be decoded";
}

/* RGB, or RGBA in an image of four channels. */
static VP8StatusCode decode_pixels(const uint8_t *bytes, size_t count, const struct image *image)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) return VP8_STATUS_UNSUPPORTED_FEATURE;
    config.output.colorspace = image->c == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = image->pixels;
    config.output.u.RGBA.stride = image->c * image->w;
    config.output.u.RGBA.size = (size_t)image->h * (size_t)image->w * (size_t)image->c;
    VP8StatusCode status = WebPDecode(bytes, count, &config);
    WebPFreeDecBuffer(&config.output);
    return status;
}

bool image_decode_webp(const uint8_t *bytes, size_t count, int channels, const struct image_choice *choice,
                       struct image *image, struct reason *reason)
{
    WebPBitstreamFeatures features;
    struct box part;
    VP8StatusCode status = WebPGetFeatures(bytes, count, &features);
    if (status != VP8_STATUS_OK) return because(reason, "WebP: %s", webp_reason(status));
    if (features.has_animation) return because(reason, "WebP: it is an animation");
    if (choice && !choice->choose(choice->context, features.height, features.width, &part, reason))
        return false;
    int stored = features.has_alpha ? 4 : 3;
    if (!image_resize_buffer(image, features.height, features.width, stored, reason)) return false;
    status = decode_pixels(bytes, count, image);
    if (status != VP8_STATUS_OK) return because(reason, "WebP: %s", webp_reason(status));
    size_t pixels = (size_t)image->h * (size_t)image->w;
    image->alpha = channels == 0 && stored == 4;
    if (channels == 0) return true;
    if (stored == 4) image_over_white(image->pixels, image->pixels, pixels, 3);
    image->c = 3;
    if (channels == 3) return true;
    image_grey_from_rgb(image->pixels, image->pixels, pixels);
    image->c = 1;
    return true;
}
