/* data_task.c: what is learned of the images, and which settings fit it. */
#include "input/data_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

static const char *const task_words[] = {
    [TASK_AUTO] = "auto", [TASK_CLASSIFY] = "classify", [TASK_MULTILABEL] = "multilabel",
    [TASK_REGRESS] = "regress", [TASK_SEGMENT] = "segment",
};
_Static_assert((int)TASK_CLASSIFY == (int)TARGET_CLASS && (int)TASK_REGRESS == (int)TARGET_NUMBER &&
               (int)TASK_AUTO == (int)TARGET_ANY && (int)TASK_SEGMENT == (int)TARGET_MASK,
               "one is the other");

/* Settings that need a class for each image, or one, and not of each pixel. */
static enum status check_masked(const struct settings *settings)
{
    const struct {
        bool given;
        const char *section, *key, *why;
    } refused[] = {
        {settings->augment.mixup > 0, "augment", "mixup", "mixes classes of images"},
        {settings->augment.cutmix > 0, "augment", "cutmix", "mixes classes of images"},
        {settings->augment.label_smoothing > 0, "augment", "label_smoothing", "smooths classes of images"},
        {settings->augment.auto_augment == AUTO_AUGMENT_TRIVIAL ||
         settings->augment.auto_augment == AUTO_AUGMENT_RAND, "augment", "auto_augment",
         "moves pixels, which masks do not follow; three changes colours alone, and flip, vflip, rotate and "
         "scale move both"},
        {settings->augment.val_crop.h > 0, "augment", "val_crop",
         "has no meaning: whole images are evaluated, in tiles of augment.val_tile"},
        {settings->augment.val_shift > 0, "augment", "val_shift", "is of classes of images"},
        {settings_has_teacher(settings), "train", "teacher", "is of classes of images"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].given)
            return settings_refuse(settings, refused[i].section, refused[i].key, "%s (data.task = segment)",
                                   refused[i].why);
    return OK;
}

/* Settings of masks, where there are none. */
static enum status check_unmasked(const struct settings *settings)
{
    static const char *const keys[][2] = {
        {"data", "palette"}, {"augment", "foreground"}, {"augment", "val_tile"},
        {"augment", "val_overlap"}, {"train", "focal_gamma"}, {"train", "tversky"},
        {"train", "dice_background"}, {"data", "ignore"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct option *option = option_find(keys[i][0], keys[i][1]);
        char *value = option_value(option, settings);
        bool changed = strcmp(value, option->field.initial) != 0;
        free(value);
        if (changed) return settings_refuse(settings, keys[i][0], keys[i][1], "needs data.task = segment");
    }
    if (settings_classes(settings) > 0 || strcmp(settings->data.classes, "auto") == 0) return OK;
    return settings_refuse(settings, "data", "classes", "must be auto or a number from 1 to 1000000, not "
                           "'%s'; names need data.task = segment", settings->data.classes);
}

/* Settings that have no meaning for labels, for numbers or for masks. */
static enum status check_settings(const struct data_opening *o)
{
    const struct settings *settings = o->settings;
    const char *task = task_words[o->data->target];
    bool number = o->data->target == TARGET_NUMBER, masked = o->data->target == TARGET_MASK;
    TRY(masked ? check_masked(settings) : check_unmasked(settings));
    if (o->data->target == TARGET_CLASS) return OK;
    if (settings->data.balance)
        return settings_refuse(settings, "data", "balance", "draws images by their class, and with data.task "
                               "= %s they have none%s", task,
                               number   ? ""
                               : masked ? "; augment.foreground draws crops by classes, and "
                                          "data.class_weights weighs pixels"
                                        : "; data.class_weights weighs labels");
    if (number && data_weighs_classes(settings))
        return settings_refuse(settings, "data", "class_weights",
                               "there are no classes with data.task = regress");
    if (number && settings->augment.label_smoothing > 0)
        return settings_refuse(settings, "augment", "label_smoothing",
                               "there are no classes with data.task = regress");
    if (number && settings->augment.cutmix > 0)
        return settings_refuse(settings, "augment", "cutmix", "a part of an image does not have a part of "
                               "its number (data.task = regress); mixup mixes whole images");
    return OK;
}

/* Sums over the training images are in double, in their order, and so the same in every run. */
static void measure_values(struct data *data)
{
    const struct images *train = &data->train;
    const struct dataset *dataset = train->dataset;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < train->count; i++)
        sum += dataset->format->number(dataset, images_index(train, i));
    data->value_mean = sum / (double)train->count;
    for (int64_t i = 0; i < train->count; i++) {
        double off = dataset->format->number(dataset, images_index(train, i)) - data->value_mean;
        squares += off * off;
    }
    data->value_std = sqrt(squares / (double)train->count);
    if (data->value_std > 0) return;
    log_warning("all training images have the value %.9g, so there is nothing to learn", data->value_mean);
    data->value_std = 1;
}

static enum status set_scale(const struct data_opening *o)
{
    struct data *data = o->data;
    const struct field_reals *given = &o->settings->data.value_scale;
    data->value_mean = 0;
    data->value_std = 1;
    if (data->target != TARGET_NUMBER) return OK;
    if (given->count == 2 && !(given->value[1] > 0))
        return settings_refuse(o->settings, "data", "value_scale", "the second number must be above 0");
    if (given->count == 2) {
        data->value_mean = given->value[0];
        data->value_std = given->value[1];
    } else if (data->train.dataset) {
        char scale[64];
        measure_values(data);
        snprintf(scale, sizeof scale, "%.17g,%.17g", data->value_mean, data->value_std);
        settings_derive(o->settings, "data", "value_scale", scale);
    }
    return OK;
}

/* Masks of weights whose file does not say are numbers. */
static void set_masks(const struct data_opening *o)
{
    struct data *data = o->data;
    const struct dataset *any = data_any(data);
    const struct mask_classes *masks = any ? any->masks : o->hint ? o->hint->masks : NULL;
    if (data->target != TARGET_MASK) return;
    data->masks = memory_new(1, sizeof *data->masks);
    if (masks && masks->classes == data->classes) mask_classes_copy(masks, data->masks);
    else mask_classes_numbers(data->classes, data->class_names, data->classes, true, data->masks);
}

enum status data_set_task(const struct data_opening *o)
{
    struct data *data = o->data;
    const struct dataset *any = data_any(data);
    int asked = o->settings->data.task;
    data->target = any ? any->target : asked == TASK_AUTO ? TARGET_CLASS : (enum target_kind)asked;
    if (asked == TASK_AUTO) settings_derive(o->settings, "data", "task", task_words[data->target]);
    TRY(check_settings(o));
    bool known = o->hint && o->hint->thresholds && o->hint->classes == data->classes;
    if (known && data->target == TARGET_LABELS) {
        data->thresholds = memory_new((size_t)data->classes, sizeof *data->thresholds);
        memcpy(data->thresholds, o->hint->thresholds, (size_t)data->classes * sizeof *data->thresholds);
    }
    set_masks(o);
    return set_scale(o);
}
