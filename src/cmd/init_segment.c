#include "cmd/init_segment.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/init_lines.h"

#define LINE 80

static char *palette_path(const char *file)
{
    bool ends = text_ends_in(file, ".ini");
    return text_format("%.*s.palette", (int)(strlen(file) - (ends ? 4 : 0)), file);
}

/* "# words": a comment of several lines. */
static void add_comment(struct text *out, char *words)
{
    char *rest = NULL;
    int width = 0;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        int length = (int)strlen(word) + 1;
        if (width == 0 || width + length >= LINE) text_add(out, "%s#", width ? "\n" : ""), width = 1;
        text_add(out, " %s", word);
        width += length;
    }
    text_add(out, "\n");
}

static void add_head(struct text *out, const struct init_findings *found, const char *file)
{
    const struct dataset classes = {.classes = found->classes, .class_names = found->masks.classes.names};
    struct text said = {0};
    masks_describe(&classes, &found->masks.counts, &said);
    log_info("masks of %d classes (%s): %s", found->classes, found->masks.kind, said.data);
    text_add(out, "# %" PRId64 " training images with masks of %d classes (%s), short sides about %d.\n",
             found->images, found->classes, found->masks.kind, found->side);
    add_comment(out, said.data);
    text_add(out, "#\n#     amptrain -c %s -o runs/first\n"
             "#     amptrain predict --weights runs/first FOLDER -o masks\n\n", file ? file : "FILE.ini");
    text_free(&said);
}

static void add_data(struct text *out, const struct init_findings *found, const char *file)
{
    const struct init_masks *masks = &found->masks;
    text_add(out, "[run]\nseed = 1                    ; another seed gives another run\n\n[data]\n");
    bool folder = found->format == format_find("folder");
    init_add(out, "format", folder ? "images and their masks, paired by name" : "images and their masks",
             "%s", found->format->name);
    init_add(out, "task", "a class for every pixel, by masks", "segment");
    init_add_path(out, "train", found->train, file, "training images");
    if (found->val) init_add_path(out, "val", found->val, file, "validation images");
    else init_add(out, "val_fraction", "fraction of the images held out for validation", "0.2");
    init_add_samples(out, found);
    if (masks->palette) {
        char *path = palette_path(file), *slash = strrchr(path, '/');
        init_add(out, "palette", "what values mean; class names are there", "%s",
                 slash ? slash + 1 : path);
        free(path);
    } else if (masks->two) {
        init_add(out, "classes", "0 and 255 in the masks", "background,foreground");
    } else {
        init_add(out, "classes", "or their names: sky,road,...", "%d", found->classes);
        init_add(out, "ignore", "pixels of this value do not count", "255");
    }
}

static void add_augment(struct text *out, const struct init_findings *found, int crop)
{
    const int64_t *pixels = found->masks.counts.pixels;
    int64_t all = 0;
    for (int i = 0; i < found->classes; i++) all += pixels[i];
    double longer = fmax(found->elongation, 1 / found->elongation);
    double area = (double)crop * crop / ((double)found->side * found->side * longer);
    text_add(out, "\n[augment]\n");
    init_add(out, "crop", "side of the network's input, and of tiles", "%d", crop);
    init_add(out, "scale", "random crops of so much of the image's area", "%.2g %.2g",
             fmin(area / 2, 1), fmin(2 * area, 1));
    if (2 * pixels[0] > all && found->classes > 1)
        init_add(out, "foreground", "a third of the crops have other classes", "0.33");
    init_add(out, "flip", "half are mirrored, left and right", "0.5");
    text_add(out, "; vflip = 0.5               ; ... and upside down, where that may be\n");
    if (!found->samples.own_channels)
        init_add(out, "jitter", "brightness, contrast, saturation vary", "0.2 0.2 0.2");
    init_add_numbers(out, "mean", found->mean, found->channels, "mean of each channel, from 0 to 1");
    init_add_numbers(out, "std", found->std, found->channels, "their standard deviations");
}

enum status init_segment_add(const struct init_findings *found, const char *file, struct text *out)
{
    int crop = found->side * 3 / 4 / 32 * 32, batch = 8;
    crop = crop < 32 ? 32 : crop > 512 ? 512 : crop;
    while (batch > 1 && batch > found->images * 3 / 4) batch /= 2;
    double epochs = fmin(fmax(ceil(24000.0 / (double)found->images), 20), 400);
    if (found->masks.palette && !file)
        return fail(USAGE, "init: these masks need a file that says what their values mean, which is written "
                    "beside the configuration; use -o FILE.ini");
    add_head(out, found, file);
    add_data(out, found, file);
    add_augment(out, found, crop);
    text_add(out, "\n[model]\n");
    init_add(out, "arch", "`amptrain models` lists the others", "unet_resnet18");
    text_add(out, "\n[train]\n");
    init_add(out, "epochs", "passes over the training images", "%.0f", epochs);
    init_add(out, "batch", "images per step", "%d", batch);
    init_add(out, "loss", "cross entropy and Dice: small classes count, too", "dice_ce");
    init_add(out, "clip_norm", "bounds the first steps, which could go far astray", "3");
    text_add(out, "\n[optimizer]\n");
    init_add(out, "name", "Adam with weight decay", "adamw");
    init_add(out, "lr", "the peak; halve it if the loss does not fall", "0.001");
    init_add(out, "weight_decay", "pulls weights towards zero, against overfitting", "0.01");
    text_add(out, "\n[schedule]\n");
    init_add(out, "name", "the rate falls to zero, almost in a line ...", "poly");
    init_add(out, "power", "... by what is left of the run, to this power", "0.9");
    init_add(out, "warmup", "... after an epoch in which it rises", "1");
    return OK;
}

enum status init_segment_write(const struct init_findings *found, const char *file)
{
    const char *text = found->masks.palette;
    if (!text) return OK;
    char *path = palette_path(file);
    enum status status = directory_has(&directory_working, path)
                             ? fail(USAGE, "init: %s: exists; it is not overwritten", path)
                             : atomic_file_write(&directory_working, path, text, strlen(text));
    if (status == OK) log_info("%s: what the masks' values mean; give classes their names there", path);
    free(path);
    return status;
}
