#include "cmd/init_findings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/csv_reader.h"
#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "base/text.h"
#include "data/dataset/detect.h"
#include "data/dataset/split_groups.h"

#define SAMPLE 400         /* number of images examined */
#define CHANNELS INIT_CHANNELS
#define BEGINNING 16384    /* bytes of a table, of which the header and the first line are read */
#define COLUMNS 64

/* Data sets by name, if their files are not available yet. */
static const struct init_findings published[] = {
    {.images = 60000, .classes = 10, .channels = 1, .side = 28, .one_size = true, .mean = {0.1307},
     .std = {0.3081}},
    {.images = 50000, .classes = 10, .channels = 3, .side = 32, .one_size = true,
     .mean = {0.4914, 0.4822, 0.4465}, .std = {0.2470, 0.2435, 0.2616}},
    {.images = 50000, .classes = 100, .channels = 3, .side = 32, .one_size = true,
     .mean = {0.5071, 0.4866, 0.4409}, .std = {0.2673, 0.2564, 0.2762}},
};
static const char *const published_names[] = {"mnist", "cifar10", "cifar100"};

/* Examining the data. */

static int compare_sides(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int compare_ratios(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* Mean and mean square of a channel, from 0 to 1, over an image. */
static void add_image(const struct image *image, const struct image_range *range, double *sum,
                      double *squares)
{
    int64_t pixels = (int64_t)image->h * image->w;
    struct image_range own = image_range_of(image, range);
    for (int64_t i = 0; i < pixels * image->c; i++) {
        double sample = image->deep ? (double)image_numbers(image)[i] : image->pixels[i];
        double x = (sample - own.low) / (own.high - own.low);
        sum[i % image->c] += x / (double)pixels;
        squares[i % image->c] += x * x / (double)pixels;
    }
}

static enum status images_measure(const struct dataset *dataset, struct init_findings *found)
{
    int64_t wanted = dataset->count < SAMPLE ? dataset->count : SAMPLE;
    double sum[IMAGE_BANDS_MAX] = {0}, squares[IMAGE_BANDS_MAX] = {0}, ratios[SAMPLE];
    int sides[SAMPLE], seen = 0, label;
    struct image image = {0};
    struct reason reason;
    for (int64_t i = 0; i < wanted; i++) {
        int64_t index = i * dataset->count / wanted;
        if (!dataset->format->read(dataset, index, NULL, &image, &label, &reason)) continue;
        ratios[seen] = (double)image.w / image.h;
        sides[seen++] = image.h < image.w ? image.h : image.w;
        add_image(&image, &found->samples.range, sum, squares);
    }
    image_free(&image);
    if (seen == 0) return fail(BAD_DATA, "no image can be read: %s", reason.text);
    qsort(sides, (size_t)seen, sizeof *sides, compare_sides);
    qsort(ratios, (size_t)seen, sizeof *ratios, compare_ratios);
    found->side = sides[seen / 2];
    found->elongation = ratios[seen / 2];
    for (int c = 0; c < dataset->c; c++) {
        found->mean[c] = sum[c] / seen;
        found->std[c] = fmax(sqrt(fmax(squares[c] / seen - found->mean[c] * found->mean[c], 0)), 0.01);
    }
    return OK;
}

static void count_classes(const struct dataset *dataset, struct init_findings *found)
{
    int64_t *counts = memory_new((size_t)dataset->classes, sizeof *counts);
    for (int64_t i = 0; dataset->format->label && i < dataset->count; i++)
        counts[dataset->format->label(dataset, i)]++;
    found->fewest = found->most = counts[0];
    for (int i = 1; i < dataset->classes; i++) {
        if (counts[i] < found->fewest) found->fewest = counts[i];
        if (counts[i] > found->most) found->most = counts[i];
    }
    free(counts);
}

/* Images with each label, or the range of numbers. */
static void count_targets(const struct dataset *dataset, struct init_findings *found)
{
    float *target = memory_new((size_t)dataset->classes, sizeof *target);
    int64_t *counts = memory_new((size_t)dataset->classes, sizeof *counts);
    bool number = dataset->target == TARGET_NUMBER;
    found->least = INFINITY;
    found->largest = -INFINITY;
    for (int64_t i = 0; i < dataset->count; i++) {
        double value = number ? dataset->format->number(dataset, i) : 0;
        found->least = fmin(found->least, value);
        found->largest = fmax(found->largest, value);
        if (!number) dataset->format->labels(dataset, i, target);
        for (int k = 0; k < dataset->classes; k++) counts[k] += target[k] != 0;
    }
    found->fewest = found->most = number ? dataset->count : counts[0];
    for (int k = 1; k < dataset->classes; k++) {
        if (counts[k] < found->fewest) found->fewest = counts[k];
        if (counts[k] > found->most) found->most = counts[k];
    }
    free(target);
    free(counts);
}

static enum status look(struct init_findings *found)
{
    struct search_paths paths = search_paths_find();
    struct mask_classes any;
    mask_classes_any(&any);
    const struct dataset_options options = {.path = found->train, .installed = paths.data, .c = CHANNELS,
                                            .target = found->target, .masks.known = &any,
                                            .table = {found->table.columns, found->table.extension,
                                                      found->table.root}};
    struct dataset dataset = {0};
    enum status status = dataset_open(found->format, &options, &dataset);
    search_paths_free(&paths);
    mask_classes_free(&any);
    if (status != OK) return status;
    found->images = dataset.count;
    found->classes = dataset.classes;
    init_samples_look(&dataset, &found->samples);
    found->channels = dataset.c;
    found->one_size = dataset.h > 0;
    found->target = dataset.target;
    found->grouped = split_groups_any(&dataset);
    if (dataset.target == TARGET_CLASS) count_classes(&dataset, found);
    else if (dataset.target != TARGET_MASK) count_targets(&dataset, found);
    if (dataset.classes == 1 && dataset.target == TARGET_CLASS)
        log_warning("%s: there is only one class, '%s'; each subfolder of images is one", found->train,
                    dataset.class_names[0]);
    if (dataset.c > CHANNELS && !found->samples.own_channels)
        status = fail(BAD_DATA, "%s: init knows images of 1 or 3 channels, not %d", found->train, dataset.c);
    if (status == OK && dataset.target == TARGET_MASK) {
        status = init_masks_look(&dataset, &found->masks);
        found->classes = found->masks.classes.classes;
    }
    if (status == OK) status = images_measure(&dataset, found);
    dataset_close(&dataset);
    return status;
}

/* A folder of class folders, or of images and masks, or one of training and one of validation images. */
static void find_splits(const char *path, struct init_findings *found)
{
    struct detected_splits splits = {0};
    found->format = format_find("folder");
    if (init_masks_find(path, &splits)) found->target = TARGET_MASK;
    else if (!detect_splits(path, NULL, &splits)) splits.train = text_copy(path);
    found->train = splits.train;
    found->val = splits.val;
    if (splits.others) log_warning("%s: not used: %s", path, splits.others);
    free(splits.others);
}

static enum status find_named(const char *name, struct init_findings *found)
{
    const char *names[16];
    int count = 0;
    for (int i = 0; format_table[i] && count < 16; i++) names[count++] = format_table[i]->name;
    const char *near = text_nearest(name, names, count);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        if (strcmp(published_names[i], name) != 0) continue;
        *found = published[i];
        found->format = format_find(name);
        found->train = text_copy(name);
        found->val = text_copy(name);
        return OK;
    }
    if (strcmp(name, "digits") != 0)
        return fail(USAGE, "init: there is no folder '%s'%s%s%s", name, near ? "; did you mean " : "",
                    near ? near : "", near ? "?" : "");
    found->format = format_find(name);
    return look(found);
}

/* True if a table has a column `mask` of files, not of 0 and 1. */
static bool names_masks(const char *path)
{
    char text[BEGINNING + 1] = "", *header[COLUMNS], *fields[COLUMNS];
    struct reason reason;
    struct csv_reader reader;
    FILE *file = directory_stream(&directory_working, path, "r", &reason);
    size_t bytes = file ? fread(text, 1, BEGINNING, file) : 0;
    if (file) fclose(file);
    if (!csv_reader_open(&reader, text, bytes, &reason)) return false;
    int columns = csv_reader_next(&reader, header, COLUMNS, &reason);
    int count = csv_reader_next(&reader, fields, COLUMNS, &reason);
    for (int i = 0; i < columns && i < count && i < COLUMNS; i++)
        if (strcasecmp(header[i], "mask") == 0) return strlen(fields[i]) > 1;
    return false;
}

enum status init_findings_make(const char *path, const char *columns, struct init_findings *found)
{
    if (access(path, F_OK) != 0) return find_named(path, found);
    const char *name = detect(path, &found->train);
    if (name)
        found->format = format_find(name), found->val = text_copy(found->train);
    else if (directory_is(path))
        find_splits(path, found);
    else
        found->format = format_find(detect_format(path)), found->train = text_copy(path);
    bool table = strcmp(found->format->name, "csv") == 0;
    if (table && columns) found->table.columns = text_copy(columns);
    if (table && names_masks(path)) found->target = TARGET_MASK;
    else if (table) TRY(init_table_look(path, &found->table));
    return look(found);
}

#define ELONGATED 2       /* and more: photographs have 1.33 to 1.78 */

static int rounded(double side, int multiple)
{
    int times = (int)lround(side / multiple);
    return multiple * (times > 1 ? times : 1);
}

struct image_size init_findings_crop(const struct init_findings *found, int side, int multiple)
{
    double ratio = found->elongation;
    bool wide = ratio >= ELONGATED, high = ratio > 0 && ratio <= 1.0 / ELONGATED;
    if (!wide && !high) return image_size_square(side);
    return (struct image_size){rounded(side / sqrt(ratio), multiple), rounded(side * sqrt(ratio), multiple)};
}

void init_findings_free(struct init_findings *found)
{
    init_masks_free(&found->masks);
    init_table_free(&found->table);
    free(found->train);
    free(found->val);
    found->train = found->val = NULL;
}
