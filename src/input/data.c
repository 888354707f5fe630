#include "input/data_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "base/watch.h"
#include "graph/model.h"

enum status data_format(const struct settings *settings, const struct format **format)
{
    const char *name = settings->data.format;
    if (!name)
        return fail(USAGE, "data.format is not set; `amptrain formats` lists the formats");
    *format = format_find(name);
    if (*format) return OK;
    const char *names[64];
    int count = 0;
    for (int i = 0; format_table[i] && count < 64; i++) names[count++] = format_table[i]->name;
    return settings_refuse_name(settings, "data", "format", names, count, "`amptrain formats` lists them");
}

static enum status input_of_model(struct data_opening *o)
{
    struct search_paths paths = search_paths_find();
    char *file = o->settings->model.file
                     ? settings_path(o->settings, o->file, o->settings->model.file) : NULL;
    struct model_options options = {
        .arch = o->settings->model.arch,
        .file = file,
        .folders = (const char *const *)paths.models,
        .dropout = -1,
    };
    enum status status = OK;
    if (o->hint && o->hint->network) {
        options.arch = o->hint->arch;
        options.text = o->hint->network;
    }
    if (options.arch || options.file || options.text)
        status = model_input(&options, &o->size, &o->channels);
    else if (o->wanted & DATA_ALONE)
        o->channels = 3;
    else
        status = fail(USAGE, "%smodel.arch is not set; `amptrain models` lists the installed models",
                      o->file ? "" : "there is no configuration (-c FILE), and ");
    free(file);
    search_paths_free(&paths);
    return status;
}

/* Classes are numbered as in the training images, or as the weights were trained: a class without validation
 * images does not change the numbers of others. */
static void number_classes(const struct data_opening *o, struct dataset_options *options)
{
    const struct dataset *train = &o->data->opened[SPLIT_TRAIN];
    if (train->format) {
        options->class_names = train->class_names;
        options->class_count = train->classes;
    } else if (o->hint && o->hint->classes > 0) {
        options->class_names = o->hint->class_names;
        options->class_count = o->hint->classes;
    }
}

/* Validation images have what training images have. */
static enum target_kind wanted_target(const struct data_opening *o)
{
    const struct dataset *train = &o->data->opened[SPLIT_TRAIN];
    return train->format ? train->target : (enum target_kind)o->settings->data.task;
}

/* Masks of validation images mean what those of training images do. */
static struct mask_options mask_options(const struct data_opening *o, char *palette, char *classes)
{
    const struct mask_classes *train = o->data->opened[SPLIT_TRAIN].masks;
    return (struct mask_options){
        .known = train ? train : o->hint ? o->hint->masks : NULL,
        .palette = palette,
        .classes = o->settings->data.classes,
        .classes_path = classes,
        .ignore = o->settings->data.ignore == MASK_IGNORES_255,
    };
}

static enum status open_split(const struct data_opening *o, enum split split)
{
    const struct settings *settings = o->settings;
    const char *named = split == SPLIT_TRAIN ? settings->data.train : settings->data.val;
    char *path = named ? settings_path(settings, o->file, named) : NULL;
    char *palette = settings->data.palette ? settings_path(settings, o->file, settings->data.palette) : NULL;
    char *root = settings->data.root ? settings_path(settings, o->file, settings->data.root) : NULL;
    char *names = settings->data.classes ? settings_path(settings, o->file, settings->data.classes) : NULL;
    struct search_paths paths = search_paths_find();
    int classes = settings_classes(settings);
    struct dataset_options options = {
        .path = path,
        .split = split,
        .installed = paths.data,
        .classes = classes ? classes : (int)settings->model.classes,
        .synthetic_count = split == SPLIT_TRAIN ? settings->data.limit : 0,
        .h = settings->augment.crop.h ? settings->augment.crop.h : o->size,
        .w = settings->augment.crop.w ? settings->augment.crop.w : o->size,
        .c = o->channels,
        .bands = o->data->bands,
        .seed = (uint64_t)settings->run.seed,
        .ignore_orientation = settings->data.orientation == ORIENTATION_IGNORE,
        .target = wanted_target(o),
        .masks = mask_options(o, palette, names),
        .table = {settings->data.columns, settings->data.extension, root},
    };
    number_classes(o, &options);
    struct watch *watch = watch_begin(WATCH_SECONDS, "%s: opening the data", path ? path : o->format->name);
    enum status status = dataset_open(o->format, &options, &o->data->opened[split]);
    watch_end(watch);
    search_paths_free(&paths);
    free(palette);
    free(names);
    free(root);
    free(path);
    return status;
}

/* The channels of image files that are asked for, in the place of the model's. */
static enum status read_bands(struct data_opening *o)
{
    const struct settings *settings = o->settings;
    const struct field_reals *given = &settings->data.bands;
    struct image_bands *bands = &o->data->bands;
    if (given->count > IMAGE_BANDS_MAX)
        return settings_refuse(settings, "data", "bands", "at most %d", IMAGE_BANDS_MAX);
    for (int i = 0; i < given->count; i++) {
        bands->list[i] = (uint8_t)(given->value[i] - 1);
        if (given->value[i] != bands->list[i] + 1.0)
            return settings_refuse(settings, "data", "bands", "%g is no number of a channel",
                                   given->value[i]);
    }
    bands->count = given->count;
    if (given->count > 0 && settings->data.channels > 0 && settings->data.channels != given->count)
        return settings_refuse(settings, "data", "channels", "is %lld, but data.bands names %d",
                               (long long)settings->data.channels, given->count);
    bands->strict = given->count > 0 || settings->data.channels > 0;
    if (bands->strict) o->channels = given->count > 0 ? given->count : (int)settings->data.channels;
    return OK;
}

/* Arrays of pixels have their own channels. */
static enum status check_bands(const struct data_opening *o)
{
    const struct dataset *data = data_any(o->data);
    const char *key = o->data->bands.count > 0 ? "bands" : "channels";
    if (!data || !o->data->bands.strict) return OK;
    if (data->c != o->channels)
        return settings_refuse(o->settings, "data", key, "the images of this data set have %d channel%s, not "
                               "%d", data->c, data->c == 1 ? "" : "s", o->channels);
    if (o->data->bands.count > 0 && !data->decoded)
        return settings_refuse(o->settings, "data", key, "is for image files; these are arrays of pixels");
    return OK;
}

static enum status check_range(const struct settings *settings)
{
    const struct field_reals *range = &settings->data.range;
    if (range->count == 0 || range->value[0] < range->value[1]) return OK;
    return settings_refuse(settings, "data", "range", "%g must be less than %g", range->value[0],
                           range->value[1]);
}

static bool wants_own_val(const struct settings *settings)
{
    return !data_holds_out(settings) && (settings->data.val || !settings->data.train);
}

static enum status open_splits(const struct data_opening *o)
{
    const struct settings *settings = o->settings;
    bool split = data_holds_out(settings);
    if (settings->data.val && split)
        return settings_refuse(o->settings, "data", settings->data.fold ? "fold" : "val_fraction",
                               "cannot be combined with data.val");
    if ((o->wanted & DATA_TRAIN) || split) {
        TRY(open_split(o, SPLIT_TRAIN));
        o->data->train.dataset = &o->data->opened[SPLIT_TRAIN];
        o->data->train.count = o->data->train.dataset->count;
    }
    if ((o->wanted & DATA_VAL) && wants_own_val(settings)) {
        TRY(open_split(o, SPLIT_VAL));
        o->data->val.dataset = &o->data->opened[SPLIT_VAL];
        o->data->val.count = o->data->val.dataset->count;
    }
    return o->data->train.dataset ? data_split(o) : OK;
}

const struct dataset *data_any(const struct data *data)
{
    for (int i = 0; i < 2; i++)
        if (data->opened[i].format) return &data->opened[i];
    return NULL;
}

static enum status name_classes(const struct data_opening *o)
{
    const struct dataset *data = data_any(o->data);
    const struct settings *settings = o->settings;
    int asked = settings_classes(settings);
    int wanted = settings->model.classes ? (int)settings->model.classes : asked;
    int in_data = data ? data->classes : 0, in_weights = o->hint ? o->hint->classes : 0;
    int classes = wanted ? wanted : MAX(in_data, in_weights);
    if (data && asked && asked != data->classes)
        return settings_refuse(o->settings, "data", "classes", "the data have %d", data->classes);
    if (data && classes < data->classes)
        return settings_refuse(o->settings, "model", "classes", "%d are too few; the data have %d", classes,
                               data->classes);
    o->data->classes = classes;
    o->data->class_names = in_weights > in_data ? text_list(o->hint->class_names, in_weights, classes)
                           : data               ? text_list(data->class_names, in_data, classes)
                                                : text_list(NULL, 0, classes);
    return OK;
}

static enum status check_balance(const struct data_opening *o)
{
    const struct settings *settings = o->settings;
    const struct dataset *train = o->data->train.dataset;
    if (!settings->data.balance || !train) return OK;
    if (!settings->data.shuffle)
        return settings_refuse(settings, "data", "balance", "cannot be combined with data.shuffle = no");
    if (!train->format->label)
        return settings_refuse(settings, "data", "balance", "needs labels before images are read, which "
                               "data.format = %s does not provide", o->format->name);
    return OK;
}

static enum status open_sets(struct data_opening *o)
{
    TRY(data_format(o->settings, &o->format));
    enum status status = open_splits(o);
    if (status == OK || !(o->wanted & DATA_OPTIONAL)) return status;
    log_info("continuing without the data: sizes follow the model and the configuration");
    return OK;
}

/* The channels of images: the data's, else the hint's, else the model file's. */
static int channels_of(const struct data_opening *o)
{
    const struct dataset *data = data_any(o->data);
    if (data) return data->c;
    if (o->data->bands.strict) return o->channels;
    if (o->hint && o->hint->channels) return o->hint->channels;
    return o->channels ? o->channels : 3;
}

/* Files of images are read with the channels that the network has, but arrays of pixels have their own. */
static enum status check_channels(const struct data_opening *o)
{
    const struct dataset *data = data_any(o->data);
    int wanted = o->hint ? o->hint->channels : 0;
    if (!data || wanted == 0 || data->c == wanted) return OK;
    return fail(BAD_DATA, "data.format = %s: the images have %d channel%s, but the network was trained on "
                "images of %d", o->format->name, data->c, data->c == 1 ? "" : "s", wanted);
}

enum status data_open(struct settings *settings, const struct data_options *options, struct data *data)
{
    *data = (struct data){0};
    data->bad = bad_images_new(data->opened, settings->data.on_error == ON_ERROR_SKIP);
    struct data_opening opening = {
        .settings = settings, .file = options->file, .wanted = options->wanted, .hint = options->hint,
        .data = data,
    };
    TRY(input_of_model(&opening));
    TRY(read_bands(&opening));
    TRY(check_range(settings));
    if (options->wanted & (DATA_TRAIN | DATA_VAL)) TRY(open_sets(&opening));
    TRY(check_channels(&opening));
    TRY(check_bands(&opening));
    for (int i = 0; i < 2; i++) {
        const struct images *images = i == SPLIT_TRAIN ? &data->train : &data->val;
        TRY(sampled_read(images->dataset, images->subset, images->count, settings->loader.timeout,
                         &data->sampled[i]));
    }
    data_set_depth(&opening);
    TRY(check_balance(&opening));
    data->channels = channels_of(&opening);
    TRY(train_sizes_read(settings, &data->sizes));
    data_set_sizes(&opening);
    TRY(name_classes(&opening));
    TRY(data_set_task(&opening));
    TRY(data_weigh_classes(&opening));
    return data_set_augment(&opening);
}

void data_number_classes(struct data *data, int classes)
{
    if (data->classes > 0) return;
    text_list_free(data->class_names, 0);
    data->classes = classes;
    data->class_names = text_list(NULL, 0, classes);
}

void data_identify(struct data *data)
{
    for (int i = 0; i < 2; i++) {
        if (!data->opened[i].format || data->identities[i]) continue;
        struct watch *watch = watch_begin(WATCH_SECONDS, "identifying the images");
        data->identities[i] = memory_new(1, sizeof *data->identities[i]);
        dataset_identity_make(&data->opened[i], data->identities[i]);
        watch_end(watch);
    }
}

void data_close(struct data *data)
{
    if (data->masks) mask_classes_free(data->masks);
    free(data->masks);
    free(data->train.subset);
    free(data->val.subset);
    for (int i = 0; i < 2; i++) {
        image_cache_close(data->caches[i]);
        image_cache_close(data->mask_caches[i]);
        dataset_close(&data->opened[i]);
        if (data->identities[i]) dataset_identity_free(data->identities[i]);
        free(data->identities[i]);
    }
    bad_images_free(data->bad);
    train_sizes_free(&data->sizes);
    free(data->class_weights);
    free(data->thresholds);
    text_list_free(data->class_names, (size_t)data->classes);
    *data = (struct data){0};
}
