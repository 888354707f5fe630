#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/shards.h"
#include "data/augment/augment.h"
#include "data/augment/resize.h"
#include "data/dataset/masks.h"
#include "data/dataset/split_groups.h"
#include "data/formats/packed.h"

/* Number of images prepared in parallel. */
#define WINDOW 256

struct packing {
    const struct dataset *dataset;
    const struct images *images;
    int side, quality;         /* side 0: images are not changed */
    bool stop_on_error;
    struct packed_writer *writer;
    bool targets;              /* there is more than a class an image */
    float *target;             /* [classes] of one image */
    int64_t written, left_out;
};

/* A prepared image. */
struct parcel {
    int64_t index;             /* in the data set */
    struct packed_entry entry;
    uint8_t *bytes;            /* NULL: it cannot be used */
    size_t count;
    struct image mask;         /* in the size of what is packed; without pixels: there is none */
    bool wrong;                /* the mask is wrong, which is no matter of one file */
    struct reason reason;
};

static bool pixels_of(const struct packing *packing, int64_t index, struct image *image,
                      struct parcel *parcel)
{
    int label;
    const struct dataset *dataset = packing->dataset;
    if (!dataset->format->read(dataset, index, NULL, image, &label, &parcel->reason)) return false;
    parcel->entry.label = (uint32_t)label;
    return true;
}

static bool make_raw(const struct packing *packing, int64_t index, struct parcel *parcel)
{
    struct image image = {0};
    if (!pixels_of(packing, index, &image, parcel)) {
        image_free(&image);
        return false;
    }
    parcel->entry.kind = PACKED_RAW;
    parcel->entry.h = (uint32_t)image.h;
    parcel->entry.w = (uint32_t)image.w;
    parcel->count = (size_t)image.h * (size_t)image.w * (size_t)image.c;
    parcel->bytes = image.pixels;
    return true;
}

/* The mask, every pixel of it the nearest one. */
static bool shrink_mask(struct image *mask, struct image_size to, struct reason *reason)
{
    const struct cut cut = {
        .from = {.h = mask->h, .w = mask->w}, to.h, to.w, .window = {.h = to.h, .w = to.w}};
    struct image small = {0};
    if (!image_resize_buffer(&small, to.h, to.w, 1, reason)) return false;
    augment_mask(&cut, mask, small.pixels);
    image_free(mask);
    *mask = small;
    return true;
}

/* Resizes the short side to `side`, and the mask, if there is one, likewise. */
static bool shrink(const struct image *image, int side, struct image *small, struct image *mask,
                   struct reason *reason)
{
    struct image_size to = image_size_covering((struct image_size){image->h, image->w},
                                               image_size_square(side));
    if (mask->pixels && !shrink_mask(mask, to, reason)) return false;
    const struct resizing resizing = {
        .from = {.h = image->h, .w = image->w}, to.h, to.w, .window = {.h = to.h, .w = to.w}};
    return resize_image(image, &resizing, small, reason);
}

static bool make_small(const struct packing *packing, int64_t index, struct parcel *parcel)
{
    struct image image = {0}, small = {0};
    bool good = pixels_of(packing, index, &image, parcel);
    bool large = good && image.h > packing->side && image.w > packing->side;
    if (large) good = shrink(&image, packing->side, &small, &parcel->mask, &parcel->reason);
    if (good && image.deep)
        good = because(&parcel->reason, "has more than 8 bits a sample, which JPEG does not keep");
    if (good)
        good = image_encode_jpeg(large ? &small : &image, packing->quality, &parcel->bytes, &parcel->count,
                                 &parcel->reason);
    parcel->entry.kind = PACKED_FILE;
    image_free(&image);
    image_free(&small);
    return good;
}

static bool make_copy(const struct packing *packing, int64_t index, struct parcel *parcel)
{
    int label;
    const struct dataset *dataset = packing->dataset;
    if (!dataset->format->read_file(dataset, index, &parcel->bytes, &parcel->count, &label, &parcel->reason))
        return false;
    parcel->entry.label = (uint32_t)label;
    parcel->entry.kind = PACKED_FILE;
    return true;
}

static bool read_mask(const struct packing *packing, int64_t index, struct parcel *parcel)
{
    if (!masks_read(packing->dataset, index, &parcel->mask, &parcel->wrong, &parcel->reason)) return false;
    parcel->wrong = !masks_fit(packing->dataset, index, &parcel->mask, &parcel->reason);
    return !parcel->wrong;
}

static void make_parcel(const struct packing *packing, int64_t i, struct parcel *parcel)
{
    int64_t index = parcel->index = images_index(packing->images, i);
    bool files = packing->dataset->format->read_file && packing->dataset->h == 0;
    bool good = (packing->dataset->target != TARGET_MASK || read_mask(packing, index, parcel)) &&
                (packing->side ? make_small(packing, index, parcel)
                 : files       ? make_copy(packing, index, parcel)
                               : make_raw(packing, index, parcel));
    if (!good) parcel->bytes = NULL;
}

static void write_target(const struct packing *packing, int64_t index)
{
    const struct dataset *dataset = packing->dataset;
    struct packed_target target = {
        .group = dataset->format->group ? dataset->format->group(dataset, index) : 0};
    uint32_t *labels = NULL;
    if (dataset->target == TARGET_LABELS) dataset->format->labels(dataset, index, packing->target);
    if (dataset->target == TARGET_NUMBER) packed_set_number(&target, dataset->format->number(dataset, index));
    for (int i = 0; dataset->target == TARGET_LABELS && i < dataset->classes; i++)
        if (packing->target[i] != 0) *array_push(labels, target.labels) = (uint32_t)i;
    packed_target(packing->writer, target, labels);
    free(labels);
}

static enum status write_mask(struct packed_writer *writer, const struct parcel *parcel)
{
    uint8_t *bytes;
    size_t count;
    struct reason reason;
    if (!image_encode_png(&parcel->mask, &bytes, &count, &reason)) return fail(FAILED, "%s", reason.text);
    enum status status = packed_mask(writer, bytes, count);
    free(bytes);
    return status;
}

static enum status write_parcel(struct packing *packing, const struct parcel *parcel)
{
    bool stop = packing->stop_on_error || parcel->wrong;
    if (!parcel->bytes && stop) return fail(BAD_DATA, "%s", parcel->reason.text);
    if (!parcel->bytes) {
        log_warning("%s: left out", parcel->reason.text);
        packing->left_out++;
        return OK;
    }
    packing->written++;
    if (packing->targets) write_target(packing, parcel->index);
    if (parcel->mask.pixels) TRY(write_mask(packing->writer, parcel));
    return packed_add(packing->writer, parcel->entry, parcel->bytes, parcel->count);
}

static enum status pack_images(struct packing *packing, int64_t from, int64_t to)
{
    struct parcel *parcels = memory_new(WINDOW, sizeof *parcels);
    enum status status = OK;
    for (int64_t first = from; first < to && status == OK; first += WINDOW) {
        int count = to - first < WINDOW ? (int)(to - first) : WINDOW;
        memset(parcels, 0, WINDOW * sizeof *parcels);
#pragma omp parallel for schedule(dynamic, 1)
        for (int i = 0; i < count; i++) make_parcel(packing, first + i, &parcels[i]);
        for (int i = 0; i < count; i++) {
            if (status == OK) status = write_parcel(packing, &parcels[i]);
            free(parcels[i].bytes);
            image_free(&parcels[i].mask);
        }
    }
    free(parcels);
    return status;
}

/* Writes images `from` to `to` to a temporary file. */
static enum status write_file(struct packing *packing, const char *path, int64_t from, int64_t to)
{
    const struct dataset *dataset = packing->dataset;
    enum status status =
        packed_create(path, dataset->c, dataset->class_names, dataset->classes, &packing->writer);
    if (status == OK && packing->targets) packed_begin_targets(packing->writer, dataset->target);
    if (status == OK) status = pack_images(packing, from, to);
    if (status == OK) status = packed_finish(packing->writer);
    packed_free(packing->writer);
    packing->writer = NULL;
    return status;
}

/* All files are complete before the first of them is renamed. */
static enum status write_all(struct packing *packing, struct atomic_file *files, int shards)
{
    int64_t count = packing->images->count;
    char **names = memory_new((size_t)shards, sizeof *names);
    enum status status = OK;
    for (int i = 0; i < shards && status == OK; i++) {
        names[i] = files[i].temporary;
        status = write_file(packing, names[i], count * i / shards, count * (i + 1) / shards);
    }
    if (status == OK && shards > 1) status = packed_join(names, shards);
    free(names);
    return status;
}

static enum status begin_all(char *const *paths, int shards, struct atomic_file *files, int *begun)
{
    for (; *begun < shards; ++*begun)
        TRY(atomic_file_begin(&directory_working, paths[*begun], &files[*begun]));
    return OK;
}

static enum status pack_files(struct packing *packing, char *const *paths, int shards)
{
    struct atomic_file *files = memory_new((size_t)shards, sizeof *files);
    int begun = 0;
    enum status status = begin_all(paths, shards, files, &begun);
    if (status == OK) status = write_all(packing, files, shards);
    for (int i = 0; i < begun; i++) {
        enum status ended = atomic_file_end(&files[i], status == OK);
        if (status == OK) status = ended;
    }
    free(files);
    return status;
}

/* One file, or several shards. */
static enum status pack_shards(struct packing *packing, const char *output, int shards)
{
    int replaced = 0;
    if (shards > 1) TRY(shards_check_existing(output, shards, &replaced));
    char **paths = memory_new((size_t)shards, sizeof *paths);
    for (int i = 0; i < shards; i++) paths[i] = shards > 1 ? shards_path(output, i) : text_copy(output);
    enum status status = pack_files(packing, paths, shards);
    if (status == OK && replaced) log_info("%s: %d files of an earlier set replaced", output, replaced);
    text_list_free(paths, (size_t)shards);
    return status == OK && shards > 1 ? shards_remove_leftovers(output, shards) : status;
}

static enum status which_split(const struct cmd *cmd, enum split *split)
{
    const char *name = cmd_value(cmd, "split") ? cmd_value(cmd, "split") : "train";
    if (strcmp(name, "train") != 0 && strcmp(name, "val") != 0)
        return fail(USAGE, "pack: --split must be train or val, not '%s'", name);
    *split = strcmp(name, "val") == 0 ? SPLIT_VAL : SPLIT_TRAIN;
    return OK;
}

static enum status pack(struct cmd *cmd, const struct images *images)
{
    long side, quality, shards;
    TRY(cmd_number(cmd, "side", 1, 0, &side));
    TRY(cmd_number(cmd, "quality", 1, 90, &quality));
    TRY(cmd_number(cmd, "shards", 1, 1, &shards));
    if (!images->dataset) return fail(BAD_DATA, "pack: this split has no images");
    if (quality > 100 || side > 65536)
        return fail(USAGE, "pack: --quality must be at most 100, --side at most 65536");
    if (shards > images->count || shards > PACKED_SHARDS_MAX)
        return fail(USAGE, "pack: --shards %ld is too large", shards);
    struct packing packing = {
        .dataset = images->dataset,
        .images = images,
        .side = (int)side,
        .quality = (int)quality,
        .stop_on_error = cmd->settings.data.on_error == ON_ERROR_STOP,
    };
    const struct dataset *dataset = images->dataset;
    packing.targets = dataset->target != TARGET_CLASS || split_groups_any(dataset);
    packing.target = memory_new((size_t)dataset->classes, sizeof *packing.target);
    double start = clock_seconds();
    enum status status = pack_shards(&packing, cmd->output, (int)shards);
    free(packing.target);
    TRY(status);
    bool labels = dataset->target == TARGET_LABELS || dataset->target == TARGET_NUMBER;
    log_info("%s: %lld images of %d %s in %.1f s%s", cmd->output, (long long)packing.written,
             dataset->classes, labels ? "labels" : "classes", clock_seconds() - start,
             packing.left_out ? ", unusable images left out" : "");
    return OK;
}

static enum status pack_run(struct cmd *cmd)
{
    struct data data;
    struct data_options options = {.file = cmd->config};
    enum split split = SPLIT_TRAIN;
    if (!cmd->output) return fail(USAGE, "pack: no output file; use -o FILE.pack");
    TRY(which_split(cmd, &split));
    TRY(cmd_check_output(cmd, cmd->output, PACKED_SIGNATURE));
    options.wanted = DATA_ALONE | (split == SPLIT_VAL ? DATA_VAL : DATA_TRAIN);
    enum status status = data_open(&cmd->settings, &options, &data);
    bool jpeg = status != OK || (!data.deep && (data.channels == 1 || data.channels == 3));
    if (cmd_value(cmd, "side") && !jpeg)
        status = fail(USAGE, "pack: --side writes JPEG files, which have 1 or 3 channels of 8 bits, unlike "
                      "these images; without it their files are packed as they are");
    if (status == OK) status = pack(cmd, split == SPLIT_VAL ? &data.val : &data.train);
    data_close(&data);
    return status;
}

static const struct cmd_option options[] = {
    {"split", "SPLIT", "train (default) or val"},
    {"side", "PIXELS", "shrink to this short side and encode as JPEG"},
    {"quality", "NUMBER", "JPEG quality with --side (default: 90)"},
    {"shards", "COUNT", "split the data set into COUNT files"},
    {0},
};

const struct command cmd_pack = {
    .name = "pack",
    .usage = "-c FILE [--split train|val] [--side PIXELS] [--quality NUMBER] [--shards COUNT] -o OUT.pack",
    .help = "Packs a data set into one file, which is faster to read.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT,
    .options = options,
    .run = pack_run,
};
