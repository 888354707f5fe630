#include "checkpoint/model_card.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
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

/* A file beside the weights; NULL: there is none, or none that can be used. */
static json_t *read_beside(const char *weights, const char *name, char **path)
{
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
    if (got >= 0 && !root) log_warning("%s: is not used: %s", beside, error.text);
    if (file >= 0) close(file);
    free(text);
    if (root && path) *path = beside;
    else free(beside);
    return root;
}

/* Three numbers, or one for all channels; divisors are above 0. */
static bool take_channels(const json_t *list, double least, double channels[MODEL_CARD_CHANNELS])
{
    size_t count = json_array_size(list);
    if (count != 1 && count != MODEL_CARD_CHANNELS) return false;
    for (size_t i = 0; i < MODEL_CARD_CHANNELS; i++) {
        double value = json_number_value(json_array_get(list, count == 1 ? 0 : i));
        if (!(value >= least && value <= 1)) return false;
        channels[i] = value;
    }
    return true;
}

static void take_normalisation(const json_t *object, const char *mean, const char *std,
                               struct model_card *card)
{
    double means[MODEL_CARD_CHANNELS], stds[MODEL_CARD_CHANNELS];
    if (!take_channels(json_object_get(object, mean), 0, means) ||
        !take_channels(json_object_get(object, std), 1e-3, stds))
        return;
    memcpy(card->mean, means, sizeof means);
    memcpy(card->std, stds, sizeof stds);
    card->normalised = true;
}

/* Sides of 1 to SIDE_MAX; else 0 x 0. */
static struct image_size size_of_sides(const json_t *h, const json_t *w)
{
    json_int_t high = json_integer_value(h), wide = json_integer_value(w);
    bool good = high > 0 && high <= SIDE_MAX && wide > 0 && wide <= SIDE_MAX;
    return good ? (struct image_size){(int)high, (int)wide} : (struct image_size){0};
}

/* 224, {"height": 224, "width": 224}, or {"shortest_edge": 224}; 0 x 0: neither. */
static struct image_size size_of(const json_t *size)
{
    const json_t *h = json_object_get(size, "height"), *w = json_object_get(size, "width");
    if (h) return size_of_sides(h, w ? w : h);
    if (json_is_object(size)) size = json_object_get(size, "shortest_edge");
    return size_of_sides(size, size);
}

static struct image_size before_crop(struct image_size crop, const json_t *share)
{
    double fraction = json_number_value(share);
    if (!(fraction > 0.1 && fraction <= 1)) return crop;
    struct image_size whole = {(int)floor(crop.h / fraction), (int)floor(crop.w / fraction)};
    return whole.h <= SIDE_MAX && whole.w <= SIDE_MAX ? whole : crop;
}

/* Class names in order: ["cat", "dog"], or {"0": "cat", "1": "dog"}. */
static void take_classes(const json_t *names, struct model_card *card)
{
    size_t count = json_is_array(names) ? json_array_size(names) : json_object_size(names);
    if (count == 0 || count > CLASSES_MAX) return;
    char **list = memory_new(count, sizeof *list);
    bool good = true;
    for (size_t i = 0; good && i < count; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        const char *name = json_string_value(json_is_array(names) ? json_array_get(names, i)
                                                                  : json_object_get(names, key));
        good = name != NULL && strncmp(name, "LABEL_", 6) != 0;   /* transformers' for none */
        list[i] = text_copy(name);
    }
    if (good) card->class_names = list, card->classes = (int)count;
    else text_list_free(list, count);
}

/* timm's: {"architecture": "resnet18", "pretrained_cfg": {"input_size": [3, 224, 224], ...}}. */
static void take_timm(const json_t *root, struct model_card *card)
{
    const json_t *images = json_object_get(root, "pretrained_cfg");
    card->architecture = text_copy(json_string_value(json_object_get(root, "architecture")));
    take_normalisation(images, "mean", "std", card);
    const json_t *size = json_object_get(images, "input_size");
    card->crop = size_of_sides(json_array_get(size, 1), json_array_get(size, 2));
    card->resize = before_crop(card->crop, json_object_get(images, "crop_pct"));
    const json_t *names = json_object_get(root, "label_names");
    take_classes(names ? names : json_object_get(images, "label_names"), card);
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

/* transformers': {"model_type": "resnet", "id2label": {"0": "tench"}}, and the other file. */
static void take_transformers(const json_t *root, const char *weights, struct model_card *card)
{
    json_t *images = read_beside(weights, "preprocessor_config.json", NULL);
    take_classes(json_object_get(root, "id2label"), card);
    card->crop = size_of(json_object_get(root, "image_size"));
    card->norm_eps = norm_eps_of_card(root);
    if (images && !json_is_false(json_object_get(images, "do_normalize")))
        take_normalisation(images, "image_mean", "image_std", card);
    struct image_size size = size_of(json_object_get(images, "size"));
    struct image_size crop = size_of(json_object_get(images, "crop_size"));
    bool crops = crop.h > 0 && !json_is_false(json_object_get(images, "do_center_crop"));
    if (crops || size.h > 0) card->crop = crops ? crop : size;
    card->resize = crops && size.h >= crop.h && size.w >= crop.w
                       ? size
                       : before_crop(card->crop, json_object_get(images, "crop_pct"));
    json_decref(images);
}

void model_card_read(const char *weights, struct model_card *card)
{
    *card = (struct model_card){0};
    json_t *root = read_beside(weights, "config.json", &card->path);
    bool timm = json_is_string(json_object_get(root, "architecture"));
    if (timm) {
        take_timm(root, card);
    } else if (json_is_string(json_object_get(root, "model_type"))) {
        take_transformers(root, weights, card);
    } else {
        free(card->path);
        card->path = NULL;
    }
    json_decref(root);
}

void model_card_free(struct model_card *card)
{
    text_list_free(card->class_names, (size_t)card->classes);
    free(card->architecture);
    free(card->path);
    *card = (struct model_card){0};
}
