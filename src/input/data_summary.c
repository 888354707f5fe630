#include "input/data_summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text_form.h"
#include "data/dataset/detect.h"
#include "input/duplicates.h"

#define LISTED_MAX 10          /* classes that are listed one by one */
#define NAME_ROOM 256
#define ALIKE_MAX 100000       /* classes whose names are compared */

static void count_labels(const struct images *images, int64_t *counts)
{
    const struct dataset *dataset = images->dataset;
    float *target = memory_new((size_t)dataset->classes, sizeof *target);
    for (int64_t i = 0; i < images->count; i++) {
        dataset->format->labels(dataset, images_index(images, i), target);
        for (int k = 0; k < dataset->classes; k++) counts[k] += target[k] != 0;
    }
    free(target);
}

int64_t *data_summary_counts(const struct images *images)
{
    const struct dataset *dataset = images->dataset;
    bool counted = dataset && (dataset->target == TARGET_CLASS || dataset->target == TARGET_LABELS);
    if (!counted || !dataset->format->label) return NULL;
    int64_t *counts = memory_new((size_t)dataset->classes, sizeof *counts);
    if (dataset->target == TARGET_LABELS) count_labels(images, counts);
    if (dataset->target == TARGET_LABELS) return counts;
    for (int64_t i = 0; i < images->count; i++)
        counts[dataset->format->label(dataset, images_index(images, i))]++;
    return counts;
}

static const char *class_name(const struct dataset *dataset, int class, char room[NAME_ROOM])
{
    return text_visible(dataset->class_names[class], room, NAME_ROOM);
}

static void log_classes(const struct dataset *dataset, const int64_t *train, const int64_t *val)
{
    struct text line = {0};
    char name[NAME_ROOM];
    for (int i = 0; i < dataset->classes; i++) {
        text_add(&line, "%s%s: %" PRId64, i ? ", " : "", class_name(dataset, i, name), train[i]);
        if (val) text_add(&line, " + %" PRId64, val[i]);
    }
    log_info("images by %s%s: %s", dataset->target == TARGET_LABELS ? "label" : "class",
             val ? " (training + validation)" : "", line.data);
    text_free(&line);
}

static void warn_of_missing(const char *split, const struct dataset *dataset, const int64_t *counts)
{
    int missing = 0, first = 0;
    char name[NAME_ROOM];
    for (int i = dataset->classes - 1; i >= 0; i--)
        if (counts[i] == 0) missing++, first = i;
    if (missing == 1)
        log_warning("class '%s' has no %s images", class_name(dataset, first, name), split);
    else if (missing > 1)
        log_warning("%d of %d classes have no %s images, such as '%s'", missing, dataset->classes, split,
                    class_name(dataset, first, name));
}

/* The class with the fewest images, of those that have any, and the one with the most. */
static void find_extremes(const struct dataset *dataset, const int64_t *counts, int *fewest, int *most)
{
    *fewest = *most = 0;
    for (int i = 0; i < dataset->classes; i++) {
        if (counts[i] > counts[*most]) *most = i;
        if (counts[i] > 0 && (counts[*fewest] == 0 || counts[i] < counts[*fewest])) *fewest = i;
    }
}

static void warn_of_imbalance(const struct settings *settings, const char *large, int64_t most,
                              const char *small, int64_t fewest)
{
    bool heeded = settings->data.balance || strcmp(settings->data.class_weights, "none") != 0;
    log_line(heeded ? LOG_INFO : LOG_WARNING,
             "the classes are imbalanced: '%s' has %" PRId64 " training images, '%s' %" PRId64 "%s", large,
             most, small, fewest, heeded ? "" : "; with data.balance or data.class_weights they count alike");
}

static void log_extremes(const struct settings *settings, const struct dataset *dataset,
                         const int64_t *counts)
{
    int fewest, most;
    char small[NAME_ROOM], large[NAME_ROOM];
    find_extremes(dataset, counts, &fewest, &most);
    class_name(dataset, fewest, small);
    class_name(dataset, most, large);
    if (counts[most] >= DATA_IMBALANCE * counts[fewest])
        warn_of_imbalance(settings, large, counts[most], small, counts[fewest]);
    else if (dataset->classes > LISTED_MAX)
        log_info("%" PRId64 " ('%s') to %" PRId64 " ('%s') training images in a class", counts[fewest], small,
                 counts[most], large);
}

static const char *find_class(const struct dataset *dataset, enum detected_split split)
{
    for (int i = 0; i < dataset->classes; i++)
        if (detect_split(dataset->class_names[i]) == split) return dataset->class_names[i];
    return NULL;
}

static void warn_of_one_class(const struct settings *settings, const struct dataset *dataset)
{
    char name[NAME_ROOM];
    if (dataset->classes == 1)
        log_warning("%s: data.train: there is only one class, '%s', so there is nothing to learn",
                    settings_where(settings, "data", "train"), class_name(dataset, 0, name));
}

struct folded {
    char *name;
    int class;
};

/* Names that people take for the same. */
static void warn_of_alike(const struct dataset *dataset)
{
    size_t classes = (size_t)dataset->classes;
    int alike = 0, first = 0;
    char one[NAME_ROOM], other[NAME_ROOM];
    struct folded *sorted = memory_new(classes, sizeof *sorted);
    for (int i = 0; i < dataset->classes; i++)
        sorted[i] = (struct folded){text_decomposed(dataset->class_names[i], true), i};
    qsort(sorted, classes, sizeof *sorted, text_compare);
    for (int i = 1; i < dataset->classes; i++)
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0 && alike++ == 0) first = i;
    if (alike > 0)
        log_warning("classes '%s' and '%s' differ in upper and lower case or in their Unicode form alone; "
                    "such pairs: %d", class_name(dataset, sorted[first - 1].class, one),
                    class_name(dataset, sorted[first].class, other), alike);
    for (size_t i = 0; i < classes; i++) free(sorted[i].name);
    free(sorted);
}

/* Warns if the parent folder of the splits was given. */
static void warn_of_splits(const struct settings *settings, const struct dataset *dataset)
{
    const char *train = find_class(dataset, DETECTED_TRAIN), *val = find_class(dataset, DETECTED_VAL);
    if (!train || !val) return;
    log_warning("%s: data.train: '%s' and '%s' are treated as classes; if they are splits, set data.train = "
                "%s/%s and data.val = %s/%s", settings_where(settings, "data", "train"), train, val,
                settings->data.train, train, settings->data.train, val);
}

static int compare_sides(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* The short sides of some images in files, whose sizes may differ. */
static void log_sides(const struct sampled *sampled)
{
    int sides[SAMPLED_SIZES], deep = 0, several = 0, count = sampled->count;
    for (int i = 0; i < count; i++) {
        const struct image_facts *facts = &sampled->facts[i];
        sides[i] = facts->size.h < facts->size.w ? facts->size.h : facts->size.w;
        deep += facts->deep;
        several += facts->pages > 1;
    }
    if (count == 0) return;
    if (deep > 0)
        log_info("image files: %d of %d examined have more than 8 bits a sample, which are kept", deep,
                 count);
    if (several > 0)
        log_warning("image files: %d of %d examined have several pages, of which the first is used", several,
                    count);
    qsort(sides, (size_t)count, sizeof *sides, compare_sides);
    int least = sides[0], most = sides[count - 1], middle = sides[count / 2];
    if (least == most)
        log_info("image files: short sides of %d pixels (%d examined)", least, count);
    else
        log_info("image files: short sides of %d to %d pixels, median %d (%d examined)", least, most, middle,
                 count);
}

static void describe_target(const struct data *data, char *what, size_t room)
{
    int classes = data->classes;
    if (data->target == TARGET_NUMBER)
        snprintf(what, room, "with values of mean %.4g, standard deviation %.4g", data->value_mean,
                 data->value_std);
    else if (data->target == TARGET_LABELS)
        snprintf(what, room, "with any of %d label%s", classes, classes == 1 ? "" : "s");
    else if (data->target == TARGET_MASK)
        snprintf(what, room, "with one of %d class%s for each pixel", classes, classes == 1 ? "" : "es");
    else
        snprintf(what, room, "in %d class%s", classes, classes == 1 ? "" : "es");
}

void data_summary_log(const struct settings *settings, const struct data *data)
{
    const struct dataset *dataset = data->train.dataset;
    int64_t *train = data_summary_counts(&data->train), *val = data_summary_counts(&data->val);
    char what[96];
    describe_target(data, what, sizeof what);
    log_info("%" PRId64 " training image%s of %dx%dx%d %s, %" PRId64 " for validation",
             data->train.count, data->train.count == 1 ? "" : "s", data->train.h, data->train.w,
             data->channels, what, data->val.count);
    if (dataset && dataset->h == 0 && dataset->format->read_file) log_sides(&data->sampled[SPLIT_TRAIN]);
    if (train && dataset->classes <= LISTED_MAX) log_classes(dataset, train, val);
    bool classes = data->target == TARGET_CLASS;
    if (train && classes) log_extremes(settings, dataset, train);
    if (train) warn_of_missing("training", dataset, train);
    if (val) warn_of_missing("validation", data->val.dataset, val);
    if (dataset && classes && settings->data.train) warn_of_one_class(settings, dataset);
    if (dataset && classes && settings->data.train) warn_of_splits(settings, dataset);
    if (dataset && dataset->target != TARGET_NUMBER && dataset->classes <= ALIKE_MAX) warn_of_alike(dataset);
    duplicates_warn(data);
    free(train);
    free(val);
}
