#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/watch.h"
#include "base/search_paths.h"
#include "session/setup.h"

static enum status find_format(const struct setup *setup, const struct format **format)
{
    const char *name = setup->settings->data.format;
    if (!name)
        return fail(USAGE, "data.format is not set: what are the images? `amptrain formats` lists the kinds");
    *format = format_find(name);
    if (*format) return OK;
    const char *names[64];
    int count = 0;
    for (int i = 0; format_table[i] && count < 64; i++) names[count++] = format_table[i]->name;
    const char *near = text_nearest(name, names, count);
    if (near)
        return setup_refuse(setup, "data", "format", "there is no '%s'; did you mean '%s'?", name, near);
    return setup_refuse(setup, "data", "format", "there is no '%s'; `amptrain formats` lists them", name);
}

/* What the model file asks its input to be; 0 where it does not say. */
static enum status input_of_model(const struct setup *setup, int *size, int *channels)
{
    struct search_paths paths = search_paths_find();
    char *file = setup->settings->model.file
                     ? settings_path(setup->settings, setup->file, setup->settings->model.file) : NULL;
    struct model_options options = {
        .arch = setup->settings->model.arch,
        .file = file,
        .folders = (const char *const *)paths.models,
        .dropout = -1,
    };
    enum status status = OK;
    if (!options.arch && !options.file)
        status =
            fail(USAGE, "model.arch is not set: which network? `amptrain models` lists the installed ones");
    else
        status = model_input(&options, size, channels);
    free(file);
    search_paths_free(&paths);
    return status;
}

/* Folders are numbered as the training images are, or those that the weights were trained on: a
 * class without validation images moves no other. */
static void number_classes(const struct setup *setup, struct dataset_options *options)
{
    const struct dataset *train = &setup->opened[SPLIT_TRAIN];
    if (train->format) {
        options->class_names = train->class_names;
        options->class_count = train->classes;
    } else if (setup->hint && setup->hint->classes > 0) {
        options->class_names = setup->hint->class_names;
        options->class_count = setup->hint->classes;
    }
}

static enum status open_split(struct setup *setup, const struct format *format, enum split split, int size,
                              int channels)
{
    const struct settings *settings = setup->settings;
    const char *named = split == SPLIT_TRAIN ? settings->data.train : settings->data.val;
    char *path = named ? settings_path(settings, setup->file, named) : NULL;
    struct search_paths paths = search_paths_find();
    int classes = (int)(settings->data.classes ? settings->data.classes : settings->model.classes);
    struct dataset_options options = {
        .path = path,
        .split = split,
        .installed = paths.data,
        .classes = classes,
        .synthetic_count = split == SPLIT_TRAIN ? settings->data.limit : 0,
        .h = settings->augment.crop ? (int)settings->augment.crop : size,
        .w = settings->augment.crop ? (int)settings->augment.crop : size,
        .c = channels,
        .seed = (uint64_t)settings->run.seed,
    };
    number_classes(setup, &options);
    struct watch *watch = watch_begin(WATCH_SECONDS, "%s: opening the data", path ? path : format->name);
    enum status status = dataset_open(format, &options, &setup->opened[split]);
    watch_end(watch);
    search_paths_free(&paths);
    free(path);
    return status;
}

/* Moves a random share of the images, in file order, from train to val. */
static void split_images(struct setup *setup)
{
    int64_t total = setup->opened[SPLIT_TRAIN].count;
    int64_t val = (int64_t)llround((double)total * setup->settings->data.val_fraction);
    if (val < 1) val = 1;
    bool *chosen = memory_new((size_t)total, sizeof *chosen);
    struct random random = random_open((uint64_t)setup->settings->run.seed, PURPOSE_SPLIT, 0, 0);
    /* Floyd's choice of `val` numbers below `total`, each set equally likely. */
    for (int64_t top = total - val; top < total; top++) {
        int64_t drawn = random_below(&random, (uint32_t)top + 1);
        chosen[chosen[drawn] ? top : drawn] = true;
    }
    setup->train.subset = memory_new((size_t)(total - val), sizeof(int64_t));
    setup->val.subset = memory_new((size_t)val, sizeof(int64_t));
    setup->train.count = setup->val.count = 0;
    for (int64_t i = 0; i < total; i++) {
        struct images *to = chosen[i] ? &setup->val : &setup->train;
        to->subset[to->count++] = i;
    }
    free(chosen);
    setup->val.dataset = setup->train.dataset;
}

static void limit_images(struct images *images, int64_t limit)
{
    if (limit == 0 || limit >= images->count) return;
    if (!images->subset) {
        images->subset = memory_new((size_t)limit, sizeof(int64_t));
        for (int64_t i = 0; i < limit; i++) images->subset[i] = i;
    }
    images->count = limit;
}

static enum status check_same_classes(const struct setup *setup)
{
    const struct dataset *train = &setup->opened[SPLIT_TRAIN], *val = &setup->opened[SPLIT_VAL];
    if (!train->format || !val->format) return OK;
    if (train->classes != val->classes)
        return fail(BAD_DATA, "training data have %d classes, validation data %d", train->classes,
                    val->classes);
    for (int i = 0; i < train->classes; i++)
        if (strcmp(train->class_names[i], val->class_names[i]) != 0)
            return fail(BAD_DATA, "class %d is '%s' in the training data and '%s' in the validation data", i,
                        train->class_names[i], val->class_names[i]);
    return OK;
}

static bool wants_own_val(const struct settings *settings)
{
    return settings->data.val_fraction == 0 && (settings->data.val || !settings->data.train);
}

static enum status open_data(struct setup *setup, const struct format *format, unsigned what, int size,
                             int channels)
{
    const struct settings *settings = setup->settings;
    bool split = settings->data.val_fraction > 0;
    if (settings->data.val && split)
        return setup_refuse(setup, "data", "val_fraction", "data.val is set too: only one of them can be");
    if ((what & DATA_TRAIN) || split) {
        TRY(open_split(setup, format, SPLIT_TRAIN, size, channels));
        setup->train.dataset = &setup->opened[SPLIT_TRAIN];
        setup->train.count = setup->train.dataset->count;
    }
    if ((what & DATA_VAL) && wants_own_val(settings)) {
        TRY(open_split(setup, format, SPLIT_VAL, size, channels));
        setup->val.dataset = &setup->opened[SPLIT_VAL];
        setup->val.count = setup->val.dataset->count;
    }
    if (split && setup->train.count < 2)
        return setup_refuse(setup, "data", "val_fraction", "there are too few images to split");
    if (split) split_images(setup);
    limit_images(&setup->train, settings->data.limit);
    return check_same_classes(setup);
}

static const struct dataset *any_data(const struct setup *setup)
{
    for (int i = 0; i < 2; i++)
        if (setup->opened[i].format) return &setup->opened[i];
    return NULL;
}

static enum status name_classes(struct setup *setup)
{
    const struct dataset *data = any_data(setup);
    const struct settings *settings = setup->settings;
    int wanted = (int)(settings->model.classes ? settings->model.classes : settings->data.classes);
    const struct setup_hint *hint = data ? NULL : setup->hint;
    int classes = wanted ? wanted : data ? data->classes : hint ? hint->classes : 0;
    if (data && settings->data.classes && settings->data.classes != data->classes)
        return setup_refuse(setup, "data", "classes", "the data have %d", data->classes);
    if (data && classes < data->classes)
        return setup_refuse(setup, "model", "classes", "%d are too few: the data have %d", classes,
                            data->classes);
    setup->class_names = memory_new((size_t)classes, sizeof *setup->class_names);
    setup->classes = classes;
    char *const *names = data ? data->class_names : hint ? hint->class_names : NULL;
    int named = data ? data->classes : hint ? hint->classes : 0;
    for (int i = 0; i < classes; i++)
        setup->class_names[i] = i < named ? text_copy(names[i]) : text_format("%d", i);
    return OK;
}

/* Sizes: of training images by crop, else resize, else the data's own, else the model file's. */

struct extent {
    int h, w;
};

static struct extent square(int64_t side)
{
    return (struct extent){(int)side, (int)side};
}

static struct extent extent_train(const struct setup *setup, int size)
{
    const struct settings *settings = setup->settings;
    const struct dataset *data = any_data(setup);
    if (settings->augment.crop) return square(settings->augment.crop);
    if (!data && setup->hint) return (struct extent){setup->hint->h, setup->hint->w};
    bool fixed = data && data->h > 0;
    if (fixed && settings->augment.resize && data->h == data->w) return square(settings->augment.resize);
    if (fixed && !settings->augment.resize) return (struct extent){data->h, data->w};
    return square(size);
}

static struct extent extent_val(const struct setup *setup, struct extent train)
{
    const struct settings *settings = setup->settings;
    const struct dataset *data = any_data(setup);
    if (settings->augment.val_crop) return square(settings->augment.val_crop);
    if (!data && setup->hint) return (struct extent){setup->hint->h, setup->hint->w};
    bool fixed = data && data->h > 0 && data->h == data->w;
    if (fixed && settings->augment.val_resize > 0) return square(settings->augment.val_resize);
    if (data && data->h > 0 && settings->augment.val_resize <= 0) return (struct extent){data->h, data->w};
    return train;
}

static void derive(struct setup *setup, const char *key, int64_t value)
{
    char *text = text_format("%" PRId64, value);
    settings_derive(setup->settings, "augment", key, text);
    free(text);
}

#define RESIZE_MAX 65536

/* What val_resize = auto comes to, for whoever evaluates or predicts: 8/7 of what is cut out, as torchvision
 * does it; images of one size stay as they are, and one of another size is brought to that. */
static void derive_val_resize(struct setup *setup)
{
    const struct dataset *data = any_data(setup);
    const char *name = setup->settings->data.format;
    const struct format *format = name ? format_find(name) : NULL;
    bool one_size = data ? data->h > 0 : format && format->one_size;
    int h = data && one_size ? data->h : setup->val.h, w = data && one_size ? data->w : setup->val.w;
    int side = h < w ? h : w;
    if (setup->settings->augment.val_resize >= 0) return;
    if (!data && setup->hint && setup->hint->val_resize >= 0) side = setup->hint->val_resize;
    else if (!one_size) side = (int)lround(side * 8.0 / 7.0);
    derive(setup, "val_resize", side < RESIZE_MAX ? side : RESIZE_MAX);
}

/* Images of many sizes must be cut to one: training and evaluation to the model's size. Unless
 * it is said how training is to come to that size, it takes random parts, which suits small and large images
 * alike. */
static void derive_cuts(struct setup *setup)
{
    const struct settings *settings = setup->settings;
    const struct dataset *data = any_data(setup);
    if (!data || data->h > 0) return;
    bool told = settings->augment.crop || settings->augment.pad || settings->augment.resize;
    if (!told && settings->augment.scale.count == 0)
        settings_derive(setup->settings, "augment", "scale", "0.08,1");
    if (!settings->augment.crop) derive(setup, "crop", setup->train.h);
    if (!settings->augment.val_crop) derive(setup, "val_crop", setup->val.h);
}

static enum status fill_channels(const struct setup *setup, const char *key, const struct field_reals *given,
                                 double otherwise, double out[IMAGE_CHANNELS_MAX])
{
    int channels = setup->channels;
    if (given->count > 1 && given->count != channels)
        return setup_refuse(setup, "augment", key, "%d numbers for images of %d channels", given->count,
                            channels);
    assert(channels >= 1 && channels <= IMAGE_CHANNELS_MAX);
    for (int i = 0; i < channels; i++)
        out[i] = given->count == 0 ? otherwise : given->value[given->count == 1 ? 0 : i];
    return OK;
}

/* A random crop must fit on what it is taken from, where that is known before an image is read. */
static enum status check_crop(const struct setup *setup)
{
    const struct settings *settings = setup->settings;
    const struct dataset *data = any_data(setup);
    int64_t resize = settings->augment.resize, border = 2 * settings->augment.pad;
    bool fixed = data && data->h > 0;
    if (!setup->augment.random_crop || (resize == 0 && !fixed)) return OK;
    int64_t h = resize ? resize : data->h, w = resize ? resize : data->w;
    if (h + border >= setup->train.h && w + border >= setup->train.w) return OK;
    return setup_refuse(setup, "augment", resize ? "resize" : "crop",
                        "a crop of %d x %d does not fit on images of %lld x %lld (augment.pad: %lld)",
                        setup->train.h, setup->train.w, (long long)h, (long long)w,
                        (long long)settings->augment.pad);
}

static enum status fill_jitter(const struct setup *setup, double amount[4])
{
    const struct field_reals *given = &setup->settings->augment.jitter;
    if (given->count != 0 && given->count != 3 && given->count != 4)
        return setup_refuse(setup, "augment", "jitter", "takes three numbers or four");
    if (given->count == 4 && given->value[3] > 0.5)
        return setup_refuse(setup, "augment", "jitter", "the hue turns by 0.5 at most");
    for (int i = 0; i < given->count; i++) amount[i] = given->value[i];
    return OK;
}

static enum policy policy_of(const struct settings *settings)
{
    static const enum policy policies[] = {
        [AUTO_AUGMENT_NONE] = POLICY_NONE,
        [AUTO_AUGMENT_TRIVIAL] = POLICY_TRIVIAL,
        [AUTO_AUGMENT_RAND] = POLICY_RAND,
    };
    return policies[settings->augment.auto_augment];
}

/* Changes of colour are defined on grey images and on red, green and blue. */
static enum status check_colours(const struct setup *setup)
{
    const struct augment *augment = &setup->augment;
    if (setup->channels == 1 || setup->channels == 3 || !augment_is_varied(augment)) return OK;
    return setup_refuse(setup, "augment", augment->policy != POLICY_NONE ? "auto_augment" : "jitter",
                        "is for images of 1 or 3 channels, and these have %d", setup->channels);
}

static enum status fill_augment(struct setup *setup)
{
    const struct settings *settings = setup->settings;
    const struct dataset *data = any_data(setup);
    struct augment *augment = &setup->augment;
    bool part = settings->augment.scale.count == 2;
    if (part && !settings->augment.crop)
        return setup_refuse(setup, "augment", "scale",
                            "needs augment.crop, the size that the part is brought to");
    bool cut = data && data->h > 0 ? setup->train.h != data->h || setup->train.w != data->w : true;
    *augment = (struct augment){
        .crop = (int)settings->augment.crop,
        .random_resized = part,
        .pad = (int)settings->augment.pad,
        .random_crop = !part && (settings->augment.pad > 0 || (settings->augment.crop > 0 && cut)),
        .flip = settings->augment.flip,
        .policy = policy_of(settings),
        .erase = settings->augment.random_erasing,
        .resize = (int)settings->augment.resize,
        .val_resize = (int)settings->augment.val_resize,
        .val_crop = (int)settings->augment.val_crop,
        .channels = setup->channels,
    };
    for (int i = 0; i < 2; i++) {
        augment->scale[i] = part ? settings->augment.scale.value[i] : 1;
        augment->ratio[i] = settings->augment.ratio.count == 2 ? settings->augment.ratio.value[i] : 1;
    }
    setup->mix = (struct mix_settings){settings->augment.mixup, settings->augment.cutmix};
    TRY(check_crop(setup));
    TRY(fill_jitter(setup, augment->jitter));
    TRY(check_colours(setup));
    TRY(fill_channels(setup, "mean", &settings->augment.mean, 0, augment->mean));
    return fill_channels(setup, "std", &settings->augment.std, 1, augment->std);
}

enum status setup_images(struct setup *setup, unsigned what)
{
    int size = 0, channels = 0;
    TRY(input_of_model(setup, &size, &channels));
    const struct format *format = NULL;
    if (what & (DATA_TRAIN | DATA_VAL)) {
        TRY(find_format(setup, &format));
        enum status status = open_data(setup, format, what, size, channels);
        if (status != OK && !(what & DATA_OPTIONAL)) return status;
        if (status != OK) log_info("going on without the data: sizes follow the model and the configuration");
    }
    const struct dataset *data = any_data(setup);
    setup->channels = data ? data->c : setup->hint ? setup->hint->channels : channels ? channels : 3;
    struct extent train = extent_train(setup, size ? size : 224);
    struct extent val = extent_val(setup, train);
    setup->train.h = train.h, setup->train.w = train.w;
    setup->val.h = val.h, setup->val.w = val.w;
    derive_cuts(setup);
    derive_val_resize(setup);
    TRY(name_classes(setup));
    return fill_augment(setup);
}
