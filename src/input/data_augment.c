#include "input/data_parts.h"

#include <assert.h>

static enum status fill_channels(const struct data_opening *o, const char *key,
                                 const struct field_reals *given, double otherwise,
                                 double out[IMAGE_CHANNELS_MAX])
{
    int channels = o->data->channels;
    if (given->count > 1 && given->count != channels)
        return settings_refuse(o->settings, "augment", key, "%d numbers for images of %d channels",
                               given->count, channels);
    assert(channels >= 1 && channels <= IMAGE_CHANNELS_MAX);
    for (int i = 0; i < channels; i++)
        out[i] = given->count == 0 ? otherwise : given->value[given->count == 1 ? 0 : i];
    return OK;
}

/* A random crop must fit its source, if the size of that is known before an image is read. */
static enum status check_crop(const struct data_opening *o)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    struct image_size size = settings->augment.resize;
    int border = 2 * (int)settings->augment.pad;
    bool fixed = data && data->h > 0, resized = size.h > 0;
    if (!o->data->augment.random_crop || (!resized && !fixed)) return OK;
    if (!resized) size = (struct image_size){data->h, data->w};
    if (size.h + border >= o->data->train.h && size.w + border >= o->data->train.w) return OK;
    return settings_refuse(o->settings, "augment", resized ? "resize" : "crop",
                           "a crop of %dx%d does not fit images of %dx%d (augment.pad: %lld)",
                           o->data->train.h, o->data->train.w, size.h, size.w,
                           (long long)settings->augment.pad);
}

/* Padding by reflection must not be wider than the image. */
static enum status check_border(const struct data_opening *o)
{
    const struct images *train = &o->data->train;
    int64_t side = train->h < train->w ? train->h : train->w, pad = o->settings->augment.pad;
    if (!o->data->augment.reflect || pad == 0 || pad < side) return OK;
    return settings_refuse(o->settings, "augment", "pad", "must be less than %lld, the side of the crop, "
                           "with augment.pad_mode = reflect", (long long)side);
}

static enum status check_shift(const struct data_opening *o)
{
    const struct images *val = &o->data->val;
    int64_t side = val->h < val->w ? val->h : val->w, shift = o->settings->augment.val_shift;
    if (!val->dataset || shift == 0 || shift < side) return OK;
    return settings_refuse(o->settings, "augment", "val_shift", "must be less than %lld, the side of the "
                           "images", (long long)side);
}

/* 3-Augment's, of brightness, contrast and saturation. */
#define THREE_JITTER 0.3

static enum status fill_jitter(const struct data_opening *o, double amount[4])
{
    const struct field_reals *given = &o->settings->augment.jitter;
    if (given->count != 0 && given->count != 3 && given->count != 4)
        return settings_refuse(o->settings, "augment", "jitter", "takes three or four numbers");
    if (given->count == 4 && given->value[3] > 0.5)
        return settings_refuse(o->settings, "augment", "jitter", "the fourth number, of the hue, is at "
                               "most 0.5");
    for (int i = 0; i < given->count; i++) amount[i] = given->value[i];
    if (given->count == 0 && o->settings->augment.auto_augment == AUTO_AUGMENT_THREE)
        amount[0] = amount[1] = amount[2] = THREE_JITTER;
    return OK;
}

/* One number for both directions, or, of a shear, for the first. */
static enum status fill_directions(const struct data_opening *o, const char *key,
                                   const struct field_reals *given, bool both, double out[2])
{
    if (given->count > 2) return settings_refuse(o->settings, "augment", key, "takes one or two numbers");
    for (int i = 0; i < 2 && given->count > 0; i++)
        out[i] = i < given->count ? given->value[i] : both ? given->value[0] : 0;
    return OK;
}

/* P, or P,LOW,HIGH, of which LOW is `least` and HIGH `most` or nearer. */
static enum status fill_chance(const struct data_opening *o, const char *key, const struct field_reals *given,
                               const double limits[2], struct chance *chance)
{
    const double *value = given->value;
    if (given->count == 0) return OK;
    if (given->count != 1 && given->count != 3)
        return settings_refuse(o->settings, "augment", key, "takes a probability, or that and two limits");
    if (value[0] > 1)
        return settings_refuse(o->settings, "augment", key, "begins with a probability, at most 1");
    chance->p = value[0];
    if (given->count == 1) return OK;
    if (value[1] > value[2] || value[1] < limits[0] || value[2] > limits[1])
        return settings_refuse(o->settings, "augment", key, "the limits must rise, from %g to %g at most",
                               limits[0], limits[1]);
    chance->low = value[1];
    chance->high = value[2];
    return OK;
}

static enum status fill_intensity(const struct data_opening *o, struct intensity *intensity)
{
    const struct settings *settings = o->settings;
    *intensity = (struct intensity){
        .gray = settings->augment.gray, .gamma = {0, 0.7, 1.5}, .blur = {0, 0.1, 2}, .noise = {0, 0, 0.1}};
    if (intensity->gray > 0 && o->data->channels != 3)
        return settings_refuse(settings, "augment", "gray", "needs images of 3 channels, not %d",
                               o->data->channels);
    TRY(fill_chance(o, "gamma", &settings->augment.gamma, (const double[]){0.01, 10}, &intensity->gamma));
    TRY(fill_chance(o, "blur", &settings->augment.blur, (const double[]){0.01, 20}, &intensity->blur));
    return fill_chance(o, "noise", &settings->augment.noise, (const double[]){0, 1}, &intensity->noise);
}

static enum policy policy_of(const struct settings *settings)
{
    static const enum policy policies[] = {
        [AUTO_AUGMENT_NONE] = POLICY_NONE,
        [AUTO_AUGMENT_TRIVIAL] = POLICY_TRIVIAL,
        [AUTO_AUGMENT_RAND] = POLICY_RAND,
        [AUTO_AUGMENT_THREE] = POLICY_THREE,
    };
    return policies[settings->augment.auto_augment];
}

/* Changes of colour are defined on grey images and on red, green and blue. */
static enum status check_colours(const struct data_opening *o)
{
    const struct augment *augment = &o->data->augment;
    bool changed = augment->policy != POLICY_NONE || policy_jitters(augment->jitter);
    if (o->data->deep && augment->policy != POLICY_NONE)
        return settings_refuse(o->settings, "augment", "auto_augment", "is defined on 8 bits a sample; the "
                               "images have more");
    if (o->data->deep && augment->jitter[3] > 0)
        return settings_refuse(o->settings, "augment", "jitter", "the fourth number, of the hue, needs "
                               "images of 8 bits a sample; these have more");
    if (o->data->channels == 1 || o->data->channels == 3 || !changed) return OK;
    return settings_refuse(o->settings, "augment", augment->policy != POLICY_NONE ? "auto_augment" : "jitter",
                           "needs images of 1 or 3 channels, not %d", o->data->channels);
}

/* Images between borders, or stretched, are resized to the crop itself. */
static enum status check_fit(const struct data_opening *o)
{
    static const char *const keys[] = {"resize", "val_resize"};
    const struct settings *settings = o->settings;
    const int values[] = {settings->augment.resize.h, settings->augment.val_resize.h};
    for (int i = 0; i < 2 && settings->augment.fit != FIT_BY_CROP; i++)
        if (values[i] > 0)
            return settings_refuse(settings, "augment", keys[i],
                                   "has no meaning with augment.fit = %s, which resizes whole images to the "
                                   "crop", settings->augment.fit == FIT_BY_STRETCH ? "stretch" : "letterbox");
    if (settings->augment.fit != FIT_BY_CROP && settings->augment.pad_mode == PAD_MODE_REFLECT)
        return settings_refuse(settings, "augment", "pad_mode", "reflect needs augment.fit = crop");
    return OK;
}

enum status data_set_augment(const struct data_opening *o)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    struct augment *augment = &o->data->augment;
    bool part = settings->augment.scale.count == 2;
    if (part && !settings->augment.crop.h)
        return settings_refuse(o->settings, "augment", "scale",
                               "needs augment.crop, the size to resize to");
    if (o->data->sizes.count > 0 && !part)
        return settings_refuse(settings, "augment", "sizes",
                               "needs augment.scale: random parts of images are resized to each size");
    bool cut = data && data->h > 0 ? o->data->train.h != data->h || o->data->train.w != data->w : true;
    *augment = (struct augment){
        .crop = settings->augment.crop.h > 0,
        .random_resized = part,
        .pad = (int)settings->augment.pad,
        .reflect = settings->augment.pad_mode == PAD_MODE_REFLECT,
        .fit = (enum image_fit)settings->augment.fit,
        .random_crop = !part && settings->augment.fit == FIT_BY_CROP &&
                       (settings->augment.pad > 0 || (settings->augment.crop.h > 0 && cut)),
        .flip = settings->augment.flip > 0 ? settings->augment.flip : 0,
        .vflip = settings->augment.vflip,
        .rotate = settings->augment.rotate,
        .foreground = settings->augment.foreground,
        .policy = policy_of(settings),
        .erase = settings->augment.random_erasing,
        .resize = settings->augment.resize,
        .val_resize = settings->augment.val_resize,
        .interpolation =
            settings->augment.interpolation == INTERPOLATION_BICUBIC ? RESIZE_BICUBIC : RESIZE_BILINEAR,
        .val_crop = settings->augment.val_crop.h > 0,
        .channels = o->data->channels,
        .range = {settings->data.range.count > 0, settings->data.range.value[0],
                  settings->data.range.value[1]},
    };
    for (int i = 0; i < 2; i++) {
        augment->scale[i] = part ? settings->augment.scale.value[i] : 1;
        augment->ratio[i] = settings->augment.ratio.count == 2 ? settings->augment.ratio.value[i] : 1;
    }
    o->data->mix = (struct mix_settings){settings->augment.mixup, settings->augment.cutmix};
    TRY(check_fit(o));
    TRY(check_crop(o));
    TRY(check_border(o));
    TRY(check_shift(o));
    TRY(fill_jitter(o, augment->jitter));
    TRY(fill_directions(o, "shear", &settings->augment.shear, false, augment->shear));
    TRY(fill_directions(o, "translate", &settings->augment.translate, true, augment->translate));
    TRY(fill_intensity(o, &augment->intensity));
    TRY(check_colours(o));
    TRY(fill_channels(o, "mean", &settings->augment.mean, 0, augment->mean));
    return fill_channels(o, "std", &settings->augment.std, 1, augment->std);
}
