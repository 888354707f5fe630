#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/atomic_file.h"
#include "base/directory.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/init_findings.h"
#include "cmd/init_lines.h"
#include "cmd/init_segment.h"
#include "cmd/init_tuning.h"
#include "device/device.h"
#include "input/data_summary.h"

/* The recipe: settings that work well for data of that size. */
struct recipe {
    const char *arch;
    bool small;
    struct image_size crop, val_crop;
    int batch, epochs;
    double lr, clip_norm;            /* clip_norm 0: none */
};

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static struct image_size own_size(const struct init_findings *found)
{
    double ratio = found->elongation > 0 ? found->elongation : 1;
    return (struct image_size){(int)lround(found->side * fmax(1 / ratio, 1)),
                               (int)lround(found->side * fmax(ratio, 1))};
}

#define GENTLE_IMAGES 3000   /* fewer have so few steps that the first ones, at a high rate, count */
#define GENTLE_BATCH 16

/* The gradient of a squared error grows with the error, unlike cross entropy's, so that rates which are good
 * for classes make the last layer diverge (bench/NOTES.md). Batches below 16 follow single images, whose
 * gradients are not averaged: the bound of larger ones would let most of them through. */
static void start_gently(const struct init_findings *found, struct recipe *recipe)
{
    bool number = found->target == TARGET_NUMBER;
    if (number) recipe->lr = fmin(recipe->lr, 0.05);
    if (number || found->images < GENTLE_IMAGES)
        recipe->clip_norm = number || recipe->batch < GENTLE_BATCH ? 1 : 3;
}

static int val_side(int side) { return (side * 6 / 5 + 16) / 32 * 32; }

static struct recipe recipe_of(const struct init_findings *found)
{
    static const struct {
        int64_t images;              /* up to so many */
        int batch;
    } batches[] = {{1000, 16}, {1400, 32}, {20000, 64}, {INT64_MAX, 128}};
    struct recipe recipe = {.small = found->side < INIT_SMALL_SIDE};
    int i = 0;
    while (found->images > batches[i].images) i++;
    recipe.batch = recipe.small && i == 3 ? 256 : batches[i].batch;
    /* A fifth and what rounding adds is held out of every class; the rest is at least a batch. */
    while (recipe.batch > 1 && recipe.batch > found->images * 3 / 4) recipe.batch /= 2;
    /* The noise of a step's gradient would grow with the square root below 16 images. */
    recipe.lr = 0.1 * sqrt(recipe.batch / 64.0) * sqrt(fmin(1, recipe.batch / 16.0));
    recipe.epochs = (int)clamp(800000 / found->images, 12, recipe.small ? 40 : 80);
    if (found->images < 1000) recipe.epochs *= 2;
    int side = recipe.small ? 32 : (int)clamp(found->side / 32 * 32, 64, 160);
    bool own = recipe.small && found->one_size;
    recipe.crop = own ? own_size(found) : init_findings_crop(found, side, recipe.small ? 8 : 32);
    bool larger = !recipe.small || recipe.crop.h == recipe.crop.w;
    recipe.val_crop = larger ? (struct image_size){val_side(recipe.crop.h), val_side(recipe.crop.w)}
                             : recipe.crop;
    bool colours = found->channels >= INIT_CHANNELS;
    start_gently(found, &recipe);
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

static void add_head(struct text *out, const struct init_findings *found, const char *file)
{
    bool labels = found->target == TARGET_LABELS;
    text_add(out, "# %" PRId64 " training images ", found->images);
    if (found->target == TARGET_NUMBER)
        text_add(out, "with numbers from %.4g to %.4g", found->least, found->largest);
    else
        text_add(out, "%s %d %s", labels ? "with any of" : "in", found->classes,
                 labels ? "labels" : "classes");
    if (found->most > found->fewest) text_add(out, " of %" PRId64 " to %" PRId64, found->fewest, found->most);
    if (found->one_size) text_add(out, ", of %dx%d pixels.\n", own_size(found).h, own_size(found).w);
    else text_add(out, ", short sides about %d pixels.\n", found->side);
    text_add(out, "#\n#     amptrain -c %s -o runs/first\n"
             "#     amptrain predict --weights runs/first IMAGE...\n\n", file ? file : "FILE.ini");
}

static void add_data(struct text *out, const struct init_findings *found, const char *file)
{
    text_add(out, "[run]\nseed = 1                    ; another seed gives another run\n\n[data]\n");
    init_add(out, "format", found->format->help, "%s", found->format->name);
    if (found->target == TARGET_LABELS) init_add(out, "task", "several labels an image", "multilabel");
    if (found->target == TARGET_NUMBER) init_add(out, "task", "a number for each image", "regress");
    if (found->train) init_add_path(out, "train", found->train, file, "training images");
    const struct init_table *table = &found->table;
    if (table->columns) init_add(out, "columns", "what the columns of the table mean", "%s", table->columns);
    if (table->extension) init_add(out, "extension", "of the names in it", "%s", table->extension);
    if (table->root) init_add_path(out, "root", table->root, file, "the folder that they are in");
    if (found->val) init_add_path(out, "val", found->val, file, "validation images");
    else if (found->train && found->most > 1)
        init_add(out, "val_fraction",
                 found->grouped ? "fraction of the images held out for validation, in whole groups"
                                : "fraction of the images held out for validation", "%s",
                 found->images < 10000 ? "0.2" : "0.1");
    init_add_samples(out, found);
    bool uneven = found->fewest > 0 && found->most >= DATA_IMBALANCE * found->fewest;
    if (uneven && found->target == TARGET_LABELS)
        text_add(out, "; class_weights = balanced  ; rare labels count as much as frequent ones\n");
    else if (uneven)
        text_add(out, "; balance = yes             ; small classes are drawn as often as large ones\n");
}

static void add_augment(struct text *out, const struct init_findings *found, const struct recipe *recipe)
{
    text_add(out, "\n[augment]\n");
    bool square = recipe->crop.h == recipe->crop.w;
    init_add_size(out, "crop", square ? "side of the network's input in training"
                                      : "height x width of the network's input", recipe->crop);
    if (recipe->small && found->one_size) {
        init_add(out, "pad", "images are shifted by up to this many pixels", "%d",
            ((recipe->crop.h < recipe->crop.w ? recipe->crop.h : recipe->crop.w) + 4) / 8);
    } else {
        init_add(out, "scale", "random crop of 25 to 100 % of the image", "0.25 1");
        init_add_size(out, "val_crop", square ? "side of the centre crop in evaluation"
                                              : "of the centre crop in evaluation", recipe->val_crop);
    }
    bool number = found->target == TARGET_NUMBER;
    if (found->channels >= INIT_CHANNELS && !number)
        init_add(out, "flip", "half are mirrored; 0 if that changes the class", "0.5");
    if (!recipe->small) {
        if (!number && !found->samples.own_channels && !found->samples.deep)
            init_add(out, "auto_augment", "one random change of geometry or colour", "trivial");
        init_add(out, "random_erasing", "a random rectangle is erased in one image of ten", "0.1");
    }
    bool confident = !recipe->small || found->images < GENTLE_IMAGES;
    if (confident && !number) init_add(out, "label_smoothing", "less overconfidence", "0.1");
    init_add_numbers(out, "mean", found->mean, found->channels, "mean of each channel, from 0 to 1");
    init_add_numbers(out, "std", found->std, found->channels, "their standard deviations");
}

static void add_training(struct text *out, const struct init_findings *found, const struct recipe *recipe)
{
    text_add(out, "\n[model]\n");
    init_add(out, "arch", "`amptrain models` lists the others", "%s", recipe->arch);
    if (!recipe->small)
        text_add(out, "; weights = resnet18.pth      ; pretrained: see init --weights\n");
    init_add_momentum(out, found, recipe->batch);
    text_add(out, "\n[train]\n");
    init_add(out, "epochs", "passes over the training images", "%d",
        recipe->epochs);
    init_add(out, "batch", "images per step", "%d", recipe->batch);
    if (recipe->clip_norm > 0)
        init_add(out, "clip_norm", "bounds the first steps, which could go far astray", "%g",
                 recipe->clip_norm);
    text_add(out, "\n[optimizer]\n");
    init_add(out, "name", "stochastic gradient descent", "sgd");
    init_add(out, "lr", "the peak; halve it if the loss does not fall", "%.3g", recipe->lr);
    init_add(out, "momentum", "onecycle varies it: 0.95 down to 0.85 and back", "0.9");
    init_add(out, "nesterov", "Nesterov's variant of momentum", "yes");
    init_add(out, "weight_decay", "pulls weights towards zero, against overfitting", "5e-4");
    text_add(out, "\n[schedule]\n");
    init_add(out, "name", "the rate rises, then falls to almost zero", "onecycle");
    init_add(out, "pct_start", "it rises during the first fifth of the run", "0.2");
}

static void add_precision(struct text *out)
{
    bool gpu = has_gpu();
    text_add(out, "\n[amp]\n");
    init_add(out, "precision", gpu ? "mixed precision" : "fp16 on a GPU: faster, as accurate",
             gpu ? "fp16" : "fp32");
}

static enum status write_text(const struct text *text, const char *path, bool pretrained)
{
    if (!path) {
        printf("%s", text->data);
        return OK;
    }
    if (directory_has(&directory_working, path))
        return fail(USAGE, "init: %s: exists; it is not overwritten", path);
    TRY(atomic_file_write(&directory_working, path, text->data, text->length));
    log_info("%s: written; train with `amptrain -c %s -o runs/first`%s", path, path,
             pretrained ? "" : "; with few images, pretrained weights help: init --weights FILE");
    return OK;
}

static enum status init_scratch(const struct init_findings *found, const char *file, struct text *text)
{
    if (found->target == TARGET_MASK) {
        TRY(init_segment_add(found, file, text));
        add_precision(text);
        return OK;
    }
    struct recipe recipe = recipe_of(found);
    add_head(text, found, file);
    add_data(text, found, file);
    add_augment(text, found, &recipe);
    add_training(text, found, &recipe);
    add_precision(text);
    return OK;
}

static enum status init_pretrained(const char *weights, const struct init_findings *found, const char *file,
                                   struct text *text)
{
    struct init_tuning tuning;
    if (found->target == TARGET_MASK)
        return fail(USAGE, "init: --weights is for classes of images; with masks set model.weights, from "
                    "which an encoder starts");
    enum status status = init_tuning_make(weights, found, &tuning);
    if (status == OK) {
        add_head(text, found, file);
        add_data(text, found, file);
        init_tuning_add(&tuning, found, file, text);
        add_precision(text);
    }
    init_tuning_free(&tuning);
    return status;
}

static enum status init_run(struct cmd *cmd)
{
    struct init_findings found = {0};
    struct text text = {0};
    const char *weights = cmd_value(cmd, "weights"), *file = cmd->output;
    if (cmd->argument_count != 1)
        return fail(USAGE, "init: give one folder of images, packed file, or data set (mnist, cifar10, "
                           "cifar100, digits)");
    enum status status = init_findings_make(cmd->arguments[0], cmd_value(cmd, "columns"), &found);
    if (status == OK)
        status = weights ? init_pretrained(weights, &found, file, &text) : init_scratch(&found, file, &text);
    if (status == OK && file) status = init_segment_write(&found, file);
    if (status == OK) status = write_text(&text, file, weights || found.target == TARGET_MASK);
    text_free(&text);
    init_findings_free(&found);
    return status;
}

static const struct cmd_option options[] = {
    {"weights", "RUN|FILE", "pretrained weights (PyTorch, safetensors), to be fine-tuned"},
    {"columns", "LIST", "what the columns of a table mean, as data.columns"},
    {0},
};

const struct command cmd_init = {
    .name = "init",
    .usage = "FOLDER|TABLE|DATASET [--weights RUN|FILE] [--columns LIST] [-o FILE.ini]",
    .help = "Writes a configuration that fits a set of images.",
    .takes = TAKES_OUTPUT | TAKES_ARGUMENTS,
    .options = options,
    .run = init_run,
};
