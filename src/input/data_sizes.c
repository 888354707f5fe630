#include "input/data_parts.h"

#include <math.h>
#include <stdio.h>

/* Sizes: of training images by crop and sizes, else resize, else the data's own, else the model file's. */

static struct image_size size_of_train(const struct data_opening *o, int size)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    struct image_size most = train_sizes_most(&o->data->sizes, settings->augment.crop);
    if (most.h) return most;
    if (!data && o->hint && o->hint->h) return (struct image_size){o->hint->h, o->hint->w};
    if (!data || data->h == 0) return image_size_square(size);
    struct image_size own = {data->h, data->w};
    return settings->augment.resize.h ? image_size_covering(own, settings->augment.resize) : own;
}

/* True if there are masks: whole images are evaluated then, in tiles. */
static bool has_masks(const struct data_opening *o)
{
    const struct dataset *data = data_any(o->data);
    return data ? data->target == TARGET_MASK : o->settings->data.task == TASK_SEGMENT;
}

static struct image_size size_of_val(const struct data_opening *o, struct image_size train)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    if (has_masks(o)) return settings->augment.val_tile.h > 0 ? settings->augment.val_tile : train;
    if (settings->augment.val_crop.h) return settings->augment.val_crop;
    if (!data && o->hint && o->hint->h) return (struct image_size){o->hint->h, o->hint->w};
    if (!data || data->h == 0) return train;
    struct image_size own = {data->h, data->w}, to = settings->augment.val_resize;
    return to.h > 0 ? image_size_covering(own, to) : own;
}

static void derive(const struct data_opening *o, const char *key, struct image_size size)
{
    settings_derive_size(o->settings, "augment", key, size);
}

/* Images of different files: those of the evaluation, if there are any. */
static const struct sampled *sampled_of(const struct data *data)
{
    return &data->sampled[data->val.dataset ? SPLIT_VAL : SPLIT_TRAIN];
}

/* True if they all cover `size` without being resized. */
static bool cover(const struct sampled *sampled, struct image_size size)
{
    for (int i = 0; i < sampled->count; i++) {
        struct image_size own = sampled->facts[i].size;
        if (!image_size_equal(image_size_covering(own, size), own)) return false;
    }
    return sampled->count > 0;
}

/* Their size, if they all have one; 0 x 0: they have not. */
static struct image_size only_size(const struct sampled *sampled)
{
    for (int i = 1; i < sampled->count; i++)
        if (!image_size_equal(sampled->facts[i].size, sampled->facts[0].size)) return (struct image_size){0};
    return sampled->facts[0].size;
}

/* True if a crop is most of an image, in both directions: 2/3 at least. */
static bool is_most(struct image_size crop, struct image_size image)
{
    return crop.h <= image.h && crop.w <= image.w && 3 * crop.h >= 2 * image.h && 3 * crop.w >= 2 * image.w;
}

#define RESIZE_MAX 65536

static int enlarged(int side)
{
    long more = lround(side * 8.0 / 7.0);
    return more < RESIZE_MAX ? (int)more : RESIZE_MAX;
}

/* The value of val_resize = auto, for evaluation and prediction: 8/7 of the crop, as in torchvision. If all
 * images have one size, or the crop's, they are not resized, and one of another size is resized to that. If
 * training resizes files before it cuts crops out of them, they are resized as in training. */
static struct image_size val_resize_of(const struct data_opening *o)
{
    const struct dataset *data = data_any(o->data);
    const char *name = o->settings->data.format;
    const struct format *format = name ? format_find(name) : NULL;
    struct image_size crop = {o->data->val.h, o->data->val.w};
    if (o->settings->augment.fit != FIT_BY_CROP || has_masks(o)) return image_size_square(0);
    if (data && data->h > 0) return (struct image_size){data->h, data->w};
    if (!data && format && format->one_size) return crop;
    struct image_size trained = o->settings->augment.resize;
    bool cut_out = o->settings->augment.scale.count == 0 && trained.h > 0;
    if (cut_out && trained.h >= crop.h && trained.w >= crop.w) return trained;
    if (data && cover(sampled_of(o->data), crop)) return crop;
    struct image_size only = data ? only_size(sampled_of(o->data)) : crop;
    if (data && is_most(crop, only)) return only;
    return (struct image_size){enlarged(crop.h), enlarged(crop.w)};
}

/* Images of different sizes must be cropped to one: the model's size, in training and evaluation. Unless
 * configured otherwise, training uses random resized crops, which suit small and large images. */
static void derive_cuts(const struct data_opening *o)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    if (!data || data->h > 0) return;
    bool told = settings->augment.crop.h || settings->augment.pad || settings->augment.resize.h ||
                settings->augment.fit != FIT_BY_CROP || has_masks(o);
    if (!told && settings->augment.scale.count == 0)
        settings_derive(o->settings, "augment", "scale", "0.08,1");
    const struct images *train = &o->data->train, *val = &o->data->val;
    if (!settings->augment.crop.h) derive(o, "crop", (struct image_size){train->h, train->w});
    if (!settings->augment.val_crop.h && !has_masks(o))
        derive(o, "val_crop", (struct image_size){val->h, val->w});
}

#define RATIO_MIN 0.01      /* of augment.ratio */
#define RATIO_MAX 100

/* Unless configured, random parts are of about the shape of the crop, to which they are resized. */
static void derive_ratio(const struct data_opening *o)
{
    struct image_size crop = o->settings->augment.crop;
    const double *ratio = o->settings->augment.ratio.value;
    if (crop.h == crop.w || o->settings->augment.scale.count == 0) return;
    if (settings_given(o->settings, "augment", "ratio") || o->settings->augment.ratio.count != 2) return;
    double own = (double)crop.w / crop.h;
    char text[64];
    snprintf(text, sizeof text, "%.6g,%.6g", fmax(ratio[0] * own, RATIO_MIN),
             fmin(ratio[1] * own, RATIO_MAX));
    settings_derive(o->settings, "augment", "ratio", text);
}

/* Images of one size become model.image_size by resizing. */
static void derive_resize(const struct data_opening *o, int size)
{
    const struct settings *settings = o->settings;
    const struct dataset *data = data_any(o->data);
    bool told = settings->augment.crop.h || settings->augment.resize.h;
    if (size == 0 || told || !data || data->h == 0 || (data->h == size && data->w == size)) return;
    derive(o, "resize", image_size_square(size));
    if (settings->augment.val_resize.h < 0 && !settings->augment.val_crop.h)
        derive(o, "val_resize", image_size_square(size));
}

void data_set_sizes(const struct data_opening *o)
{
    int size = (int)o->settings->model.image_size;
    derive_resize(o, size);
    struct image_size train = size_of_train(o, size ? size : o->size ? o->size : 224);
    struct image_size val = size_of_val(o, train);
    o->data->train.h = train.h, o->data->train.w = train.w;
    o->data->val.h = val.h, o->data->val.w = val.w;
    if (has_masks(o) && o->settings->augment.val_tile.h == 0) derive(o, "val_tile", val);
    derive_cuts(o);
    derive_ratio(o);
    if (o->settings->augment.val_resize.h < 0) derive(o, "val_resize", val_resize_of(o));
}

/* Bytes are enough for images of 8 bits in a range within theirs. */
void data_set_depth(const struct data_opening *o)
{
    const struct field_reals *range = &o->settings->data.range;
    enum split split = o->data->train.dataset ? SPLIT_TRAIN : SPLIT_VAL;
    bool beyond = range->count > 0 && (range->value[0] < 0 || range->value[1] > 255);
    o->data->deep = beyond || sampled_deep(&o->data->sampled[split]);
}
