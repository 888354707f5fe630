#include "data/dataset/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/field.h"
#include "base/hash.h"
#include "base/memory.h"
#include "data/dataset/detect.h"

static const char *const target_words[] = {
    [TARGET_ANY] = "", [TARGET_CLASS] = "a class for each image", [TARGET_LABELS] = "several labels an image",
    [TARGET_NUMBER] = "a number for each image", [TARGET_MASK] = "a mask for each image",
};

enum status dataset_open(const struct format *format, const struct dataset_options *options,
                         struct dataset *dataset)
{
    struct dataset opened = {.format = format, .ignore_orientation = options->ignore_orientation,
                             .bands = options->bands};
    struct reason reason;
    if (options->path && !detect_check(format->name, options->path, &reason))
        return fail(BAD_DATA, "%s", reason.text);
    enum status status = format->open(options, &opened);
    if (opened.target == TARGET_ANY) opened.target = TARGET_CLASS;
    if (status == OK && options->target != TARGET_ANY && options->target != opened.target)
        status = fail(BAD_DATA, "%s: has %s, not %s", options->path ? options->path : format->name,
                      target_words[opened.target], target_words[options->target]);
    bool masks = opened.target == TARGET_MASK && !opened.masks;
    if (status == OK && masks) status = dataset_define_masks(options, &opened);
    if (status == OK) status = dataset_number_classes(options, &opened);
    if (status == OK && opened.masks && opened.numbers)
        mask_classes_renumber(opened.masks, opened.numbers, opened.class_names, opened.classes);
    if (status != OK) {
        dataset_close(&opened);
        return status;
    }
    *dataset = opened;
    return OK;
}

void dataset_close(struct dataset *dataset)
{
    if (dataset->held) return;
    if (dataset->format) dataset->format->close(dataset);
    text_list_free(dataset->class_names, (size_t)dataset->classes);
    free(dataset->numbers);
    if (dataset->masks) mask_classes_free(dataset->masks);
    free(dataset->masks);
    *dataset = (struct dataset){0};
}

bool target_parse_number(const char *text, double *number, struct reason *reason)
{
    static const struct field real = {
        .name = "number", .type = FIELD_REAL, .min = -TARGET_NUMBER_MAX, .max = TARGET_NUMBER_MAX};
    return field_parse(&real, number, text, reason);
}

void dataset_target(const struct dataset *dataset, int64_t index, double mean, double std, float *target)
{
    if (dataset->target == TARGET_NUMBER)
        *target = (float)((dataset->format->number(dataset, index) - mean) / std);
    else
        dataset->format->labels(dataset, index, target);
}

uint64_t dataset_group(const char *name)
{
    uint64_t hash = *name ? hash_bytes(0, name, strlen(name)) : 0;
    return *name && hash == 0 ? 1 : hash;
}

char *dataset_image_path(const struct dataset *dataset, int64_t index)
{
    return dataset->format->image_path ? dataset->format->image_path(dataset, index) : NULL;
}

struct image_options dataset_image_options(const struct dataset *dataset)
{
    return (struct image_options){dataset->c, dataset->ignore_orientation, dataset->bands};
}

bool dataset_file_decode(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                         struct image *image, int *label, struct reason *reason)
{
    char *path = dataset->format->image_path(dataset, index);
    bool good = image_load(path, dataset_image_options(dataset), choice, image, reason);
    *label = dataset->format->label(dataset, index);
    free(path);
    return good;
}

bool dataset_file_read(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                       int *label, struct reason *reason)
{
    char *path = dataset->format->image_path(dataset, index);
    bool good = image_read_file(path, bytes, count, reason);
    *label = dataset->format->label(dataset, index);
    free(path);
    return good;
}

/* Called by the decoder for the part of an image to decode: none, only the size is needed. */
static bool note_size(void *context, int h, int w, struct box *part, struct reason *reason)
{
    *(struct image_size *)context = (struct image_size){h, w};
    return because(reason, "only its size was wanted");
}

bool dataset_image_facts(const struct dataset *dataset, int64_t index, struct image_facts *facts,
                         struct reason *reason)
{
    *facts = (struct image_facts){0};
    const struct image_choice choice = {note_size, &facts->size};
    struct image image = {0};
    int label;
    if (dataset->format->read(dataset, index, &choice, &image, &label, reason))
        facts->size = (struct image_size){image.h, image.w};
    facts->deep = image.deep;
    facts->pages = image.pages;
    image_free(&image);
    return facts->size.h > 0;
}

static int64_t file_bytes(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? status.st_size : -1;
}

void dataset_file_contents(const struct dataset *dataset, int64_t index, struct image_contents *contents)
{
    char *path = dataset->format->image_path(dataset, index);
    contents->bytes = file_bytes(path);
    free(path);
}

bool dataset_mask_file(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                       struct reason *reason)
{
    const struct format_masks *masks = dataset->format->masks;
    if (masks->read_file) return masks->read_file(dataset, index, bytes, count, reason);
    char *path = masks->path(dataset, index);
    bool good = image_read_file(path, bytes, count, reason);
    free(path);
    return good;
}

void dataset_mask_contents(const struct dataset *dataset, int64_t index, struct image_contents *contents)
{
    const struct format_masks *masks = dataset->format->masks;
    *contents = (struct image_contents){0};
    if (masks->contents) {
        masks->contents(dataset, index, contents);
        return;
    }
    char *path = masks->path(dataset, index);
    contents->bytes = file_bytes(path);
    free(path);
}
