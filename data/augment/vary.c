#include "data/augment/vary.h"

#include "data/augment/colour.h"

static bool change_apply(const struct change *change, const struct variation *variation,
                         struct image *picture, struct image *copy, struct intensity_scratch *scratch,
                         struct reason *reason)
{
    double amount = change->amount;
    switch ((enum change_kind)change->kind) {
    case CHANGE_BRIGHTNESS: return colour_brightness(picture, amount), true;
    case CHANGE_CONTRAST: return colour_contrast(picture, amount), true;
    case CHANGE_SATURATION: return colour_saturation(picture, amount), true;
    case CHANGE_HUE: return colour_hue(picture, amount), true;
    case CHANGE_SHARPNESS: return colour_sharpness(picture, amount, copy, reason);
    case CHANGE_POSTERIZE: return colour_posterize(picture, (int)amount), true;
    case CHANGE_SOLARIZE: return colour_solarize(picture, amount), true;
    case CHANGE_GAMMA: return colour_gamma(picture, amount), true;
    case CHANGE_AUTOCONTRAST: return colour_autocontrast(picture), true;
    case CHANGE_EQUALIZE: return colour_equalize(picture), true;
    case CHANGE_WARP: return warp_image(picture, &change->warp, copy, reason);
    case CHANGE_SOFTEN: return colour_blur(picture, amount, copy, reason);
    case CHANGE_BLUR: return intensity_blur(picture, amount, change->reach, scratch, reason);
    case CHANGE_NOISE:
        return intensity_noise(picture, amount, &variation->random, variation->draw, scratch), true;
    }
    return true;
}

bool vary_apply(const struct variation *variation, struct image *picture, struct image *copy,
                struct intensity_scratch *scratch, struct reason *reason)
{
    for (int i = 0; i < variation->count; i++)
        if (!change_apply(&variation->changes[i], variation, picture, copy, scratch, reason)) return false;
    return true;
}

bool vary_leave(struct variation *variation, int row)
{
    for (int i = 0; i < variation->count; i++) {
        const struct change *change = &variation->changes[i];
        if (change->kind == CHANGE_GAMMA) colour_gamma_table(change->amount, variation->gamma);
        if (change->kind == CHANGE_SOFTEN) colour_blur_weights(change->amount, variation->soften);
        if (change->kind != CHANGE_BLUR) continue;
        if (change->reach >= BLUR_TAPS || (size_t)row * sizeof(float) > BLUR_SHARED) return false;
        intensity_blur_weights(change->amount, change->reach, variation->blur);
    }
    return true;
}
