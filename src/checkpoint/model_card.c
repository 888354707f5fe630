#include "checkpoint/model_card.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define BYTES_MAX (8 << 20)
#define MARKS_MAX 400000       /* braces, brackets and commas: 21,000 classes have a hundred thousand */
#define CLASSES_MAX 100000
#define SIDE_MAX 10000
#define PIXEL_MAX 255.0

/* A file that is read. Fields of it that cannot be used are reported by their names. */
struct reading {
    const char *weights;
    bool says;
    char *path;                    /* of the file */
    struct model_card *card;
};

__attribute__((format(printf, 3, 4)))
static void refuse(const struct reading *reading, const char *field, const char *format, ...)
{
    va_list arguments;
    char why[200];
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    if (reading->says) log_warning("%s: %s %s", reading->path, field, why);
}

/* A file beside the weights; NULL: there is none, or none that can be used. */
static json_t *read_beside(struct reading *reading, const char *name)
{
    const char *weights = reading->weights;
    const char *slash = strrchr(weights, '/');
    char *beside = text_format("%.*s%s", slash ? (int)(slash + 1 - weights) : 0, weights, name);
    char *text = memory_try(BYTES_MAX + 1, 1);
    struct reason unsaid;
    json_error_t error = {.text = "it is too long"};
    json_t *root = NULL;
    int file = text ? directory_file(&directory_working, beside, O_RDONLY, &unsaid) : -1;
    ssize_t got = file >= 0 ? file_read(file, text, BYTES_MAX + 1, 0) : -1;
    if (got >= 0 && got <= BYTES_MAX && text_json_marks(text, (size_t)got) <= MARKS_MAX)
        root = json_loadb(text, (size_t)got, JSON_REJECT_DUPLICATES, &error);
    if (got >= 0 && !root && reading->says) log_warning("%s: is not used: %s", beside, error.text);
    if (file >= 0) close(file);
    free(text);
    reading->path = beside;
    return root;
}

static bool is_there(const json_t *object, const char *field)
{
    const json_t *value = json_object_get(object, field);
    return value && !json_is_null(value);
}

static bool take_flag(const struct reading *reading, const json_t *object, const char *field, bool initial)
{
    const json_t *value = json_object_get(object, field);
    if (!is_there(object, field)) return initial;
    if (json_is_boolean(value)) return json_is_true(value);
    refuse(reading, field, "is neither true nor false, and not used");
    return initial;
}

/* Three numbers, or one for all channels. */
static bool take_channels(const struct reading *reading, const json_t *object, const char *field,
                          double channels[MODEL_CARD_CHANNELS])
{
    const json_t *list = json_object_get(object, field);
    size_t count = json_array_size(list);
    bool good = count == 1 || count == MODEL_CARD_CHANNELS;
    for (size_t i = 0; good && i < MODEL_CARD_CHANNELS; i++) {
        const json_t *number = json_array_get(list, count == 1 ? 0 : i);
        good = json_is_number(number);
        channels[i] = json_number_value(number);
    }
    if (!good && is_there(object, field))
        refuse(reading, field, "is not a list of %d numbers, and not used", MODEL_CARD_CHANNELS);
    return good;
}

/* Numbers by which y = (scale x - mean) / std, of pixels x from 0 to 255. */
struct normalisation {
    double mean[MODEL_CARD_CHANNELS], std[MODEL_CARD_CHANNELS], scale;
};

static bool is_of_bytes(const struct normalisation *n)
{
    bool beyond = false;
    for (int k = 0; k < MODEL_CARD_CHANNELS; k++) beyond = beyond || n->mean[k] > 1 || n->std[k] > 1;
    return beyond;
}

/* Keeps them as of x / 255. Divisors are above 0. */
static void keep_normalisation(const struct reading *reading, const struct normalisation *n,
                               const char *field)
{
    struct model_card *card = reading->card;
    bool good = true;
    for (int k = 0; k < MODEL_CARD_CHANNELS; k++) {
        card->mean[k] = n->mean[k] / (PIXEL_MAX * n->scale);
        card->std[k] = n->std[k] / (PIXEL_MAX * n->scale);
        good = good && card->mean[k] >= 0 && card->mean[k] <= 1 && card->std[k] >= 1e-3 && card->std[k] <= 1;
    }
    card->normalised = good;
    if (good) card->normalised_by = text_copy(reading->path);
    else refuse(reading, field, "is not used: of x / 255, means are 0 to 1 and deviations 0.001 to 1");
}

static void take_normalisation(const struct reading *reading, const json_t *object, const char *mean,
                               const char *std, struct normalisation *n)
{
    bool has_mean = take_channels(reading, object, mean, n->mean);
    if (!take_channels(reading, object, std, n->std) || !has_mean) {
        if (is_there(object, mean) != is_there(object, std))
            refuse(reading, has_mean ? mean : std, "is alone, and not used");
        return;
    }
    if (n->scale * PIXEL_MAX == 1 && is_of_bytes(n)) {
        refuse(reading, mean, "is beyond 1: it and %s are taken as those of pixels from 0 to 255", std);
        n->scale = 1;
    }
    keep_normalisation(reading, n, mean);
}

/* Sides of 1 to SIDE_MAX; else 0 x 0. */
static struct image_size size_of_sides(const json_t *h, const json_t *w)
{
    json_int_t high = json_integer_value(h), wide = json_integer_value(w);
    bool good = high > 0 && high <= SIDE_MAX && wide > 0 && wide <= SIDE_MAX;
    return good ? (struct image_size){(int)high, (int)wide} : (struct image_size){0};
}

/* 224, [224, 224], {"height": 224, "width": 224}, or {"shortest_edge": 224}; 0 x 0: none of them. */
static struct image_size size_of_value(const json_t *size)
{
    const json_t *h = json_object_get(size, "height"), *w = json_object_get(size, "width");
    if (h) return size_of_sides(h, w ? w : h);
    if (json_array_size(size) == 2) return size_of_sides(json_array_get(size, 0), json_array_get(size, 1));
    if (json_is_object(size)) size = json_object_get(size, "shortest_edge");
    return size_of_sides(size, size);
}

static struct image_size size_of(const struct reading *reading, const json_t *object, const char *field)
{
    struct image_size size = size_of_value(json_object_get(object, field));
    if (size.h == 0 && is_there(object, field))
        refuse(reading, field, "is no size that is known, and not used");
    return size;
}

static struct image_size before_crop(const struct reading *reading, const json_t *object,
                                     struct image_size crop)
{
    double fraction = json_number_value(json_object_get(object, "crop_pct"));
    struct image_size whole = crop;
    if (!is_there(object, "crop_pct")) return crop;
    if (fraction > 0.1 && fraction <= 1)
        whole = (struct image_size){(int)floor(crop.h / fraction), (int)floor(crop.w / fraction)};
    else refuse(reading, "crop_pct", "is not between 0.1 and 1, and not used");
    return whole.h <= SIDE_MAX && whole.w <= SIDE_MAX ? whole : crop;
}

/* timm's name of the way in which images are resized, or PIL's number. */
static void take_interpolation(const struct reading *reading, const json_t *object, const char *field)
{
    const json_t *value = json_object_get(object, field);
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    json_int_t number = json_integer_value(value);
    if (number == 2 || strcmp(name, "bilinear") == 0)
        reading->card->interpolation = "bilinear";
    else if (number == 3 || strcmp(name, "bicubic") == 0)
        reading->card->interpolation = "bicubic";
    else if (is_there(object, field))
        refuse(reading, field, "is neither bilinear nor bicubic (2 and 3): augment.interpolation is used");
}

/* Class names in order: ["cat", "dog"], or {"0": "cat", "1": "dog"}. */
static void take_classes(const struct reading *reading, const json_t *object, const char *field)
{
    const json_t *names = json_object_get(object, field);
    size_t count = json_is_array(names) ? json_array_size(names) : json_object_size(names);
    char **list = NULL;
    bool good = count > 0 && count <= CLASSES_MAX, none = false;
    if (good) list = memory_new(count, sizeof *list);
    for (size_t i = 0; good && i < count; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        const char *name = json_string_value(json_is_array(names) ? json_array_get(names, i)
                                                                  : json_object_get(names, key));
        none = name && strncmp(name, "LABEL_", 6) == 0;      /* transformers' for none */
        good = name && !none;
        list[i] = text_copy(name);
    }
    if (good) reading->card->class_names = list, reading->card->classes = (int)count;
    else text_list_free(list, list ? count : 0);
    if (good) reading->card->class_names_by = text_format("%s: %s", reading->path, field);
    else if (is_there(object, field) && !none)
        refuse(reading, field, "is not a name for each class, numbered from 0, and not used");
}

void model_card_limit_classes(struct model_card *card, int64_t outputs, bool says)
{
    if (card->classes == 0 || card->classes == outputs) return;
    if (says && outputs > 0)
        log_warning("%s names %d classes, but the weights have %" PRId64 " outputs: the names are not used",
                    card->class_names_by, card->classes, outputs);
    text_list_free(card->class_names, (size_t)card->classes);
    card->class_names = NULL;
    card->classes = 0;
}

/* timm's: {"architecture": "resnet18", "pretrained_cfg": {"input_size": [3, 224, 224], ...}}. */
static void take_timm(const struct reading *reading, const json_t *root)
{
    const json_t *images = json_object_get(root, "pretrained_cfg");
    struct model_card *card = reading->card;
    struct normalisation n = {.scale = 1 / PIXEL_MAX};
    card->architecture = text_copy(json_string_value(json_object_get(root, "architecture")));
    take_normalisation(reading, images, "mean", "std", &n);
    const json_t *size = json_object_get(images, "input_size"), *mode = json_object_get(images, "crop_mode");
    card->crop = size_of_sides(json_array_get(size, 1), json_array_get(size, 2));
    if (size && card->crop.h == 0) refuse(reading, "input_size", "is no size that is known, and not used");
    card->resize = before_crop(reading, images, card->crop);
    if (json_is_string(mode) && strcmp(json_string_value(mode), "center") != 0)
        refuse(reading, "crop_mode", "is '%.30s': the centre is used", json_string_value(mode));
    take_interpolation(reading, images, "interpolation");
    bool own = is_there(root, "label_names");
    take_classes(reading, own ? root : images, "label_names");
}

/* In these networks all layer norms have it. */
static double norm_eps_of_card(const json_t *root)
{
    static const char *const types[] = {"vit", "deit", "dinov2", "dinov2_with_registers", "swin"};
    const char *type = json_string_value(json_object_get(root, "model_type"));
    double eps = json_number_value(json_object_get(root, "layer_norm_eps"));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0 && eps >= 1e-20 && eps <= 1) return eps;
    return 0;
}

/* The image processor makes x rescale_factor of x, and of that, (x - image_mean) / image_std. */
static void take_processor(const struct reading *reading, const json_t *images)
{
    const json_t *factor = json_object_get(images, "rescale_factor");
    struct normalisation n = {.scale = 1 / PIXEL_MAX, .std = {1, 1, 1}};
    bool rescales = take_flag(reading, images, "do_rescale", true);
    const char *scaled = rescales ? "rescale_factor" : "do_rescale";
    if (!rescales) n.scale = 1;
    else if (json_number_value(factor) > 1e-9) n.scale = json_number_value(factor);
    else if (is_there(images, scaled)) refuse(reading, scaled, "is not above 0, and not used");
    if (fabs(n.scale * PIXEL_MAX - 1) < 1e-6) n.scale = 1 / PIXEL_MAX;
    if (!take_flag(reading, images, "do_normalize", true))
        keep_normalisation(reading, &n, n.scale * PIXEL_MAX == 1 ? "do_normalize" : scaled);
    else
        take_normalisation(reading, images, "image_mean", "image_std", &n);
    if (!reading->card->normalised && n.scale * PIXEL_MAX != 1)
        refuse(reading, scaled, "is not used, because the mean and deviation are not known");
    if (!take_flag(reading, images, "do_resize", true))
        refuse(reading, "do_resize", "is false, but images are resized");
    take_interpolation(reading, images, "resample");
    static const char *const others[] = {"do_flip_channel_order", "rescale_offset", "do_pad"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (take_flag(reading, images, others[i], false))
            refuse(reading, others[i], "is true, which is not done here");
}

/* transformers': {"model_type": "resnet", "id2label": {"0": "tench"}}, and the other file. */
static void take_transformers(struct reading *reading, const json_t *root)
{
    struct model_card *card = reading->card;
    take_classes(reading, root, "id2label");
    card->crop = card->resize = size_of(reading, root, "image_size");
    card->norm_eps = norm_eps_of_card(root);
    free(reading->path);
    json_t *images = read_beside(reading, "preprocessor_config.json");
    if (!images) return;
    take_processor(reading, images);
    struct image_size size = size_of(reading, images, "size");
    struct image_size crop = size_of(reading, images, "crop_size");
    bool crops = take_flag(reading, images, "do_center_crop", true) && crop.h > 0;
    if (crops || size.h > 0) card->crop = crops ? crop : size;
    card->resize = crops && size.h >= crop.h && size.w >= crop.w ? size
                                                                 : before_crop(reading, images, card->crop);
    json_decref(images);
}

void model_card_read(const char *weights, bool says, struct model_card *card)
{
    *card = (struct model_card){0};
    struct reading reading = {.weights = weights, .says = says, .card = card};
    json_t *root = read_beside(&reading, "config.json");
    bool timm = json_is_string(json_object_get(root, "architecture"));
    bool transformers = json_is_string(json_object_get(root, "model_type"));
    if (timm || transformers) card->path = text_copy(reading.path);
    if (timm) take_timm(&reading, root);
    else if (transformers) take_transformers(&reading, root);
    free(reading.path);
    json_decref(root);
}

void model_card_free(struct model_card *card)
{
    text_list_free(card->class_names, (size_t)card->classes);
    free(card->architecture);
    free(card->path);
    free(card->normalised_by);
    free(card->class_names_by);
    *card = (struct model_card){0};
}
