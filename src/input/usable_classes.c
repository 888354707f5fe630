#include "input/usable_classes.h"

#include <stdlib.h>

#include "base/memory.h"
#include "data/dataset/by_class.h"

#define LISTED 5               /* classes of a split */
#define NAME_ROOM 128

static bool has_classes(const struct images *images)
{
    const struct dataset *dataset = images->dataset;
    return dataset && dataset->decoded && dataset->target == TARGET_CLASS && dataset->format->label;
}

static bool is_usable(const struct dataset *dataset, int64_t index, struct bad_source *source)
{
    struct image image = {0};
    struct reason reason;
    int label;
    bool good = dataset->format->read(dataset, index, NULL, &image, &label, &reason);
    if (!good) bad_images_report(source, index, reason.text);
    image_free(&image);
    return good;
}

static void try_split(const struct data *data, const struct images *images)
{
    if (!has_classes(images)) return;
    struct by_class by = by_class_make(images->dataset, images->subset, images->count);
    struct bad_source *source = bad_images_source(data->bad, images->dataset);
#pragma omp parallel for schedule(dynamic, 1)
    for (int k = 0; k < by.classes; k++)
        for (int64_t i = by.begins[k]; i < by.begins[k + 1]; i++)
            if (is_usable(images->dataset, images_index(images, by.images[i]), source)) break;
    by_class_free(&by);
}

void usable_classes_try(const struct data *data)
{
    try_split(data, &data->train);
    try_split(data, &data->val);
}

static bool is_missing(const struct data *data, const struct images *images, const struct by_class *by,
                       int class)
{
    const struct bad_source *source = bad_images_source(data->bad, images->dataset);
    for (int64_t i = by->begins[class]; i < by->begins[class + 1]; i++)
        if (!bad_images_known(source, images_index(images, by->images[i]))) return false;
    return true;
}

static void add_split(const struct data *data, const struct images *images, const char *split,
                      struct text *out)
{
    int missing = 0;
    char name[NAME_ROOM];
    if (!has_classes(images)) return;
    struct by_class by = by_class_make(images->dataset, images->subset, images->count);
    for (int k = 0; k < by.classes; k++) {
        if (!is_missing(data, images, &by, k) || missing++ >= LISTED) continue;
        int label = images->dataset->format->label(images->dataset,
                                                   images_index(images, by.images[by.begins[k]]));
        text_add(out, "%s'%s'", out->length ? ", " : "",
                 text_visible(images->dataset->class_names[label], name, sizeof name));
    }
    if (missing > LISTED) text_add(out, " and %d more", missing - LISTED);
    if (missing > 0) text_add(out, " (%s)", split);
    by_class_free(&by);
}

char *usable_classes_missing(const struct data *data)
{
    struct text out = {0};
    add_split(data, &data->train, "training", &out);
    add_split(data, &data->val, "validation", &out);
    return out.data;
}
