#include "input/data_parts.h"

#include <math.h>

/* Sizes: of training images by crop and sizes, else resize, else the data's own, else the model file's. */

struct extent {
    int h, w;
};

static struct extent square(int64_t side)
{
    return (struct extent){(int)side, (int)side};
}

static struct extent extent_train(const struct data_opening *o, int size)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    int most = train_sizes_most(&o->data->sizes, (int)settings->augment.crop);
    if (most) return square(most);
    if (!data && o->hint && o->hint->h) return (struct extent){o->hint->h, o->hint->w};
    bool fixed = data && data->h > 0;
    if (fixed && settings->augment.resize && data->h == data->w) return square(settings->augment.resize);
    if (fixed && !settings->augment.resize) return (struct extent){data->h, data->w};
    return square(size);
}

static struct extent extent_val(const struct data_opening *o, struct extent train)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    if (settings->augment.val_crop) return square(settings->augment.val_crop);
    if (!data && o->hint && o->hint->h) return (struct extent){o->hint->h, o->hint->w};
    bool fixed = data && data->h > 0 && data->h == data->w;
    if (fixed && settings->augment.val_resize > 0) return square(settings->augment.val_resize);
    if (data && data->h > 0 && settings->augment.val_resize <= 0) return (struct extent){data->h, data->w};
    return train;
}

static void derive(const struct data_opening *o, const char *key, int64_t value)
{
    settings_derive_number(o->settings, "augment", key, value);
}

#define RESIZE_MAX 65536

/* The value of val_resize = auto, for evaluation and prediction: 8/7 of the crop, as in torchvision; if all
 * images have one size, they are not resized, and one of another size is resized to that. */
static void derive_val_resize(const struct data_opening *o)
{
    const struct dataset *data = data_any(o->data);
    const char *name = o->settings->data.format;
    const struct format *format = name ? format_find(name) : NULL;
    bool one_size = data ? data->h > 0 : format && format->one_size;
    int h = data && one_size ? data->h : o->data->val.h, w = data && one_size ? data->w : o->data->val.w;
    int side = h < w ? h : w;
    if (o->settings->augment.val_resize >= 0) return;
    if (o->settings->augment.fit != FIT_BY_CROP) side = 0;
    else if (!one_size) side = (int)lround(side * 8.0 / 7.0);
    derive(o, "val_resize", side < RESIZE_MAX ? side : RESIZE_MAX);
}

/* Images of different sizes must be cropped to one: the model's size, in training and evaluation. Unless
 * configured otherwise, training uses random resized crops, which suit small and large images. */
static void derive_cuts(const struct data_opening *o)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    if (!data || data->h > 0) return;
    bool told = settings->augment.crop || settings->augment.pad || settings->augment.resize ||
                settings->augment.fit != FIT_BY_CROP;
    if (!told && settings->augment.scale.count == 0)
        settings_derive(o->settings, "augment", "scale", "0.08,1");
    if (!settings->augment.crop) derive(o, "crop", o->data->train.h);
    if (!settings->augment.val_crop) derive(o, "val_crop", o->data->val.h);
}

/* Images of one size become model.image_size by resizing. */
static void derive_resize(const struct data_opening *o, int64_t size)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    bool told = settings->augment.crop || settings->augment.resize;
    if (size == 0 || told || !data || data->h == 0 || (data->h == size && data->w == size)) return;
    derive(o, "resize", size);
    if (settings->augment.val_resize < 0 && !settings->augment.val_crop) derive(o, "val_resize", size);
}

void data_set_sizes(const struct data_opening *o)
{
    int64_t size = o->settings->model.image_size;
    derive_resize(o, size);
    struct extent train = extent_train(o, size ? (int)size : o->size ? o->size : 224);
    struct extent val = extent_val(o, train);
    o->data->train.h = train.h, o->data->train.w = train.w;
    o->data->val.h = val.h, o->data->val.w = val.w;
    derive_cuts(o);
    derive_val_resize(o);
}
