/* A folder of class folders with PNG, JPEG, WebP and TIFF files at any depth, recognised by their first
 * bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "base/text.h"
#include "data/dataset/dataset.h"
#include "data/dataset/detect.h"
#include "data/formats/listing.h"
#include "data/formats/mask_pairs.h"

struct image_folder {
    char *root;
    struct listing listing;
    struct mask_pairs pairs;   /* with masks, and `listing` is its own; otherwise zeroed */
};

/* Data sets of other tasks. False: a folder beside the images has no images in it, but boxes, maybe. */
static bool check_layout(const struct image_folder *folder)
{
    const struct listing *listing = &folder->listing;
    const char *images, *beside;
    if (!detect_beside(listing->classes, listing->class_count, &images, &beside)) return true;
    for (size_t i = 0; i < listing->count; i++) {
        if (strcmp(listing->classes[listing->files[i].class], beside) != 0) continue;
        log_warning("%s: '%s' and '%s' are treated as classes; if the second are masks of the first, "
                    "data.task = segment learns a class for every pixel", folder->root, images, beside);
        return true;
    }
    return fail(BAD_DATA, "%s: looks like '%s' with boxes or outlines in '%s' (object detection), which "
                "amptrain does not learn; to classify images, give each class a folder", folder->root, images,
                beside) == OK;
}

/* Validation data may have fewer classes. */
static enum status check_images(const struct image_folder *folder, bool classes_known)
{
    const struct listing *listing = &folder->listing;
    if (listing->count == 0)
        return fail(BAD_DATA, "%s: no PNG, JPEG, WebP or TIFF image in its class folders", folder->root);
    if (!check_layout(folder)) return BAD_DATA;
    struct text empty = {0};
    size_t next = 0;
    for (int i = 0; i < listing->class_count; i++) {
        size_t first = next;
        while (next < listing->count && listing->files[next].class == i) next++;
        if (next == first) text_add(&empty, "%s%s", empty.length ? ", " : "", listing->classes[i]);
    }
    enum status status = OK;
    if (empty.length && classes_known)
        log_warning("%s: class folders without PNG, JPEG, WebP or TIFF images: %s", folder->root, empty.data);
    else if (empty.length)
        status = fail(BAD_DATA, "%s: class folders without PNG, JPEG, WebP or TIFF images: %s; remove or "
                      "fill them",
                      folder->root, empty.data);
    text_free(&empty);
    return status;
}

/* Images and masks in folders of their own; the one class is replaced by the masks'. */
static enum status open_pairs(const char *path, struct image_folder *folder, struct dataset *dataset)
{
    TRY(mask_pairs_find(path, &folder->pairs));
    folder->root = text_copy(folder->pairs.images);
    folder->listing = folder->pairs.listed;
    dataset->classes = 1;
    dataset->class_names = text_list(NULL, 0, 1);
    dataset->target = TARGET_MASK;
    return OK;
}

static enum status open_classes(const char *path, bool classes_known, struct image_folder *folder,
                                struct dataset *dataset)
{
    struct listing *listing = &folder->listing;
    struct reason reason;
    folder->root = text_copy(path);
    char *cache = search_paths_cache();
    bool good = listing_make(folder->root, cache, listing, &reason);
    free(cache);
    if (!good) return fail(BAD_DATA, "%s", reason.text);
    dataset->classes = listing->class_count;
    dataset->class_names = text_list(listing->classes, listing->class_count, listing->class_count);
    listing_warn(folder->root, listing);
    return check_images(folder, classes_known);
}

static enum status folder_open(const struct dataset_options *options, struct dataset *dataset)
{
    struct image_folder *folder = dataset->state = memory_new(1, sizeof *folder);
    if (!options->path) return fail(BAD_DATA, "folder: no folder is given; set data.train");
    if (options->target == TARGET_MASK) TRY(open_pairs(options->path, folder, dataset));
    else TRY(open_classes(options->path, options->class_names != NULL, folder, dataset));
    dataset->count = (int64_t)folder->listing.count;
    dataset->c = dataset_channels(options);
    dataset->decoded = true;
    return OK;
}

static const char *folder_image_name(const struct dataset *dataset, int64_t index)
{
    const struct image_folder *folder = dataset->state;
    const char *name = folder->listing.names + folder->listing.files[index].name;
    return folder->pairs.names ? name + strlen("./") : name;
}

static char *folder_image_path(const struct dataset *dataset, int64_t index)
{
    const struct image_folder *folder = dataset->state;
    const char *name = folder_image_name(dataset, index);
    /* Without printf: it is called for every image, and would be noticeable for small ones. */
    size_t root = strlen(folder->root), rest = strlen(name) + 1;
    char *path = memory_new(root + 1 + rest, 1);
    memcpy(path, folder->root, root);
    path[root] = '/';
    memcpy(path + root + 1, name, rest);
    return path;
}

static int folder_label(const struct dataset *dataset, int64_t index)
{
    const struct image_folder *folder = dataset->state;
    return dataset_number(dataset, folder->listing.files[index].class);
}

static char *folder_mask_path(const struct dataset *dataset, int64_t index)
{
    const struct image_folder *folder = dataset->state;
    return text_format("%s/%s", folder->pairs.masks, folder->pairs.names[index]);
}

static void folder_close(struct dataset *dataset)
{
    struct image_folder *folder = dataset->state;
    if (!folder) return;
    if (folder->pairs.names) mask_pairs_free(&folder->pairs);
    else listing_free(&folder->listing);
    free(folder->root);
    free(folder);
}

const struct format format_folder = {
    .name = "folder",
    .help = "class folders of PNG, JPEG, WebP and TIFF images",
    .open = folder_open,
    .read = dataset_file_decode,
    .label = folder_label,
    .read_file = dataset_file_read,
    .image_name = folder_image_name,
    .contents = dataset_file_contents,
    .masks = &(const struct format_masks){.path = folder_mask_path},
    .image_path = folder_image_path,
    .close = folder_close,
};
