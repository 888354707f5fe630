#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "conf/ini.h"
#include "cmd.h"
#include "data/dataset.h"
#include "data/detect.h"
#include "device/device.h"
#include "input/data_summary.h"

#define SAMPLE 400         /* number of images examined */
#define CHANNELS 3
#define SMALL_SIDE 48      /* smaller images are shifted, not cropped at random */

/* The facts known of a data set. */
struct findings {
    const struct format *format;
    char *train, *val;               /* paths; NULL: the format's own place; a share of the training images */
    int64_t images;
    int classes, channels;
    int64_t fewest, most;            /* images in a class */
    int side;                        /* median of the images' short sides */
    bool one_size;
    double mean[CHANNELS], std[CHANNELS];
};

/* Data sets by name, if their files are not available yet. */
static const struct findings published[] = {
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

/* Mean and mean square of a channel, from 0 to 1, over an image. */
static void add_image(const struct image *image, double sum[CHANNELS], double squares[CHANNELS])
{
    int64_t pixels = (int64_t)image->h * image->w;
    for (int64_t i = 0; i < pixels * image->c; i++) {
        double x = image->pixels[i] / 255.0;
        sum[i % image->c] += x / (double)pixels;
        squares[i % image->c] += x * x / (double)pixels;
    }
}

static enum status images_measure(const struct dataset *dataset, struct findings *found)
{
    int64_t wanted = dataset->count < SAMPLE ? dataset->count : SAMPLE;
    double sum[CHANNELS] = {0}, squares[CHANNELS] = {0};
    int sides[SAMPLE], seen = 0, label;
    struct image image = {0};
    struct reason reason;
    for (int64_t i = 0; i < wanted; i++) {
        int64_t index = i * dataset->count / wanted;
        if (!dataset->format->read(dataset, index, NULL, &image, &label, &reason)) continue;
        sides[seen++] = image.h < image.w ? image.h : image.w;
        add_image(&image, sum, squares);
    }
    image_free(&image);
    if (seen == 0) return fail(BAD_DATA, "no image can be read: %s", reason.text);
    qsort(sides, (size_t)seen, sizeof *sides, compare_sides);
    found->side = sides[seen / 2];
    for (int c = 0; c < dataset->c; c++) {
        found->mean[c] = sum[c] / seen;
        found->std[c] = fmax(sqrt(fmax(squares[c] / seen - found->mean[c] * found->mean[c], 0)), 0.01);
    }
    return OK;
}

static void count_classes(const struct dataset *dataset, struct findings *found)
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

static enum status look(struct findings *found)
{
    struct search_paths paths = search_paths_find();
    const struct dataset_options options = {.path = found->train, .installed = paths.data, .c = CHANNELS,
                                            .target = TARGET_CLASS};
    struct dataset dataset = {0};
    enum status status = dataset_open(found->format, &options, &dataset);
    search_paths_free(&paths);
    if (status != OK) return status;
    found->images = dataset.count;
    found->classes = dataset.classes;
    found->channels = dataset.c;
    found->one_size = dataset.h > 0;
    count_classes(&dataset, found);
    if (dataset.classes == 1)
        log_warning("%s: there is only one class, '%s'; each subfolder of images is one", found->train,
                    dataset.class_names[0]);
    if (dataset.c > CHANNELS)
        status = fail(BAD_DATA, "%s: init knows images of 1 or 3 channels, not %d", found->train, dataset.c);
    if (status == OK) status = images_measure(&dataset, found);
    dataset_close(&dataset);
    return status;
}

/* A folder of class folders, or one of training and one of validation images. */
static void find_splits(const char *path, struct findings *found)
{
    struct detected_splits splits = {0};
    found->format = format_find("folder");
    if (!detect_splits(path, &splits)) splits.train = text_copy(path);
    found->train = splits.train;
    found->val = splits.val;
    if (splits.others) log_warning("%s: not used: %s", path, splits.others);
    free(splits.others);
}

static enum status find_named(const char *name, struct findings *found)
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

static enum status find(const char *path, struct findings *found)
{
    if (access(path, F_OK) != 0) return find_named(path, found);
    const char *name = detect(path, &found->train);
    if (name)
        found->format = format_find(name), found->val = text_copy(found->train);
    else if (directory_is(path))
        find_splits(path, found);
    else
        found->format = format_find(detect_format(path)), found->train = text_copy(path);
    return look(found);
}

/* The recipe: settings that work well for data of that size. */
struct recipe {
    const char *arch;
    bool small;
    int crop, batch, epochs;
    double lr;
};

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static struct recipe recipe_of(const struct findings *found)
{
    static const struct {
        int64_t images;              /* up to so many */
        int batch;
    } batches[] = {{1000, 16}, {1400, 32}, {20000, 64}, {INT64_MAX, 128}};
    struct recipe recipe = {.small = found->side < SMALL_SIDE};
    int i = 0;
    while (found->images > batches[i].images) i++;
    recipe.batch = recipe.small && i == 3 ? 256 : batches[i].batch;
    /* A fifth and what rounding adds is held out of every class; the rest is at least a batch. */
    while (recipe.batch > 1 && recipe.batch > found->images * 3 / 4) recipe.batch /= 2;
    recipe.lr = 0.1 * sqrt(recipe.batch / 64.0);
    recipe.epochs = (int)clamp(800000 / found->images, 12, recipe.small ? 40 : 80);
    if (found->images < 1000) recipe.epochs *= 2;
    recipe.crop = found->one_size ? found->side : 32;
    if (!recipe.small) recipe.crop = (int)clamp(found->side / 32 * 32, 64, 160);
    bool colours = found->channels == CHANNELS;
    recipe.arch = !recipe.small ? "resnet18" : colours && found->side >= 24 ? "resnet18_cifar" : "resnet20";
    return recipe;
}

static bool has_gpu(void)
{
    struct reason reason;
    for (int i = 0; device_backends[i]; i++)
        if (device_backends[i]->kind == DEVICE_CUDA && device_backends[i]->count(&reason) > 0) return true;
    return false;
}

/* The file. */

/* "KEY = VALUE     ; COMMENT" */
static void __attribute__((format(printf, 4, 5)))
add(struct text *out, const char *key, const char *comment, const char *format, ...)
{
    char value[PATH_MAX + 64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    size_t start = out->length;
    text_add(out, "%s = ", key);
    ini_add_value(out, value);
    int width = (int)(out->length - start);
    text_add(out, "%*s ; %s\n", width < 27 ? 27 - width : 0, "", comment);
}

/* A path as it must be written in a configuration `file` (NULL: here); in `whole` if that differs. */
static const char *path_from(const char *file, const char *path, char whole[PATH_MAX])
{
    bool here = !file || !strchr(file, '/');
    return !here && realpath(path, whole) ? whole : path;
}

static void add_path(struct text *out, const char *key, const char *path, const char *file,
                     const char *comment)
{
    char whole[PATH_MAX];
    add(out, key, comment, "%s", path_from(file, path, whole));
}

static void add_numbers(struct text *out, const char *key, const double *values, int count,
                        const char *comment)
{
    char list[64];
    int length = 0;
    for (int c = 0; c < count; c++)
        length += snprintf(list + length, sizeof list - (size_t)length, "%s%.4g", c ? " " : "", values[c]);
    add(out, key, comment, "%s", list);
}

static void add_head(struct text *out, const struct findings *found, const char *file)
{
    text_add(out, "# %" PRId64 " training images in %d classes", found->images, found->classes);
    if (found->most > found->fewest) text_add(out, " of %" PRId64 " to %" PRId64, found->fewest, found->most);
    text_add(out, found->one_size ? ", of %dx%d pixels.\n" : ", short sides about %d pixels.\n", found->side,
             found->side);
    text_add(out, "#\n#     amptrain -c %s -o runs/first\n"
             "#     amptrain predict --weights runs/first IMAGE...\n\n", file ? file : "FILE.ini");
}

static void add_data(struct text *out, const struct findings *found, const char *file)
{
    text_add(out, "[run]\nseed = 1                    ; another seed gives another run\n\n[data]\n");
    add(out, "format", found->format->help, "%s", found->format->name);
    if (found->train) add_path(out, "train", found->train, file, "training images");
    if (found->val) add_path(out, "val", found->val, file, "validation images");
    else if (found->train && found->most > 1)
        add(out, "val_fraction", "fraction of the images held out for validation", "%s",
            found->images < 10000 ? "0.2" : "0.1");
    if (found->fewest > 0 && found->most >= DATA_IMBALANCE * found->fewest)
        text_add(out, "; balance = yes             ; small classes are drawn as often as large ones\n");
}

static void add_augment(struct text *out, const struct findings *found, const struct recipe *recipe)
{
    text_add(out, "\n[augment]\n");
    add(out, "crop", "side of the network's input in training", "%d", recipe->crop);
    if (recipe->small && found->one_size) {
        add(out, "pad", "images are shifted by up to this many pixels", "%d",
            (recipe->crop + 4) / 8);
    } else {
        add(out, "scale", "random crop of 25 to 100 % of the image", "0.25 1");
        add(out, "val_crop", "side of the centre crop in evaluation", "%d",
            (recipe->crop * 6 / 5 + 16) / 32 * 32);
    }
    if (found->channels == CHANNELS)
        add(out, "flip", "half are mirrored; 0 if that changes the class", "0.5");
    if (!recipe->small) {
        add(out, "auto_augment", "one random change of geometry or colour", "trivial");
        add(out, "random_erasing", "a random rectangle is erased in one image of ten", "0.1");
        add(out, "label_smoothing", "less overconfidence", "0.1");
    }
    add_numbers(out, "mean", found->mean, found->channels, "mean of each channel, from 0 to 1");
    add_numbers(out, "std", found->std, found->channels, "their standard deviations");
}

static void add_training(struct text *out, const struct recipe *recipe)
{
    text_add(out, "\n[model]\n");
    add(out, "arch", "`amptrain models` lists the others", "%s", recipe->arch);
    if (!recipe->small)
        text_add(out, "; weights = resnet18.safetensors ; pretrained: helps with few images\n");
    text_add(out, "\n[train]\n");
    add(out, "epochs", "passes over the training images", "%d",
        recipe->epochs);
    add(out, "batch", "images per step", "%d", recipe->batch);
    text_add(out, "\n[optimizer]\n");
    add(out, "name", "stochastic gradient descent", "sgd");
    add(out, "lr", "the peak; halve it if the loss does not fall", "%.3g", recipe->lr);
    add(out, "momentum", "onecycle varies it: 0.95 down to 0.85 and back", "0.9");
    add(out, "nesterov", "Nesterov's variant of momentum", "yes");
    add(out, "weight_decay", "pulls weights towards zero, against overfitting", "5e-4");
    text_add(out, "\n[schedule]\n");
    add(out, "name", "the rate rises, then falls to almost zero", "onecycle");
    add(out, "pct_start", "it rises during the first fifth of the run", "0.2");
    text_add(out, "\n[amp]\n");
    bool gpu = has_gpu();
    add(out, "precision", gpu ? "mixed precision" : "fp16 on a GPU: faster, as accurate",
        gpu ? "fp16" : "fp32");
}

static enum status write_text(const struct text *text, const char *path)
{
    if (!path) {
        printf("%s", text->data);
        return OK;
    }
    if (directory_has(&directory_working, path))
        return fail(USAGE, "init: %s: exists; it is not overwritten", path);
    TRY(atomic_file_write(&directory_working, path, text->data, text->length));
    log_info("%s: written; train with `amptrain -c %s -o runs/first`; with few images, pretrained weights "
             "help: see conf/finetune.ini", path, path);
    return OK;
}

static enum status init_run(struct cmd *cmd)
{
    struct findings found = {0};
    struct text text = {0};
    if (cmd->argument_count != 1)
        return fail(USAGE, "init: give one folder of images, packed file, or data set (mnist, cifar10, "
                           "cifar100, digits)");
    enum status status = find(cmd->arguments[0], &found);
    if (status == OK) {
        struct recipe recipe = recipe_of(&found);
        add_head(&text, &found, cmd->output);
        add_data(&text, &found, cmd->output);
        add_augment(&text, &found, &recipe);
        add_training(&text, &recipe);
        status = write_text(&text, cmd->output);
    }
    text_free(&text);
    free(found.train);
    free(found.val);
    return status;
}

const struct command cmd_init = {
    .name = "init",
    .usage = "FOLDER|DATASET [-o FILE.ini]",
    .help = "Writes a configuration that fits a set of images.",
    .takes = TAKES_OUTPUT | TAKES_ARGUMENTS,
    .run = init_run,
};
