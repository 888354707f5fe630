#include "data/formats/mask_pairs.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

static const char *const mask_folders[] = {"masks", "labels", "annotations", "annot"};
enum { FOLDERS = sizeof mask_folders / sizeof *mask_folders };

/* Endings of masks' names, and of those of their images. */
static const char *const endings[][2] = {
    {"_mask", ""}, {"_label", ""}, {"_gt", ""}, {"_L", ""}, {"_gtFine_labelIds", "_leftImg8bit"},
};
#define LIST_BYTES_MAX ((size_t)64 << 20)
enum { ENDINGS = sizeof endings / sizeof *endings };

/* An image's name without its extension, and its place in the listing. */
struct stem {
    char *name;
    size_t place;
};

static const char *listed_name(const struct listing *listing, size_t place)
{
    return listing->names + listing->files[place].name + 2;
}

static char *stem_of(const char *name)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    return dot && dot > (slash ? slash + 1 : name) ? text_format("%.*s", (int)(dot - name), name)
                                                   : text_copy(name);
}

/* Folders of images whose masks are in a folder with the same path but for one name. */
static const struct layout {
    const char *images, *masks;
} layouts[] = {
    {"leftImg8bit", "gtFine"}, {"img_dir", "ann_dir"}, {"JPEGImages", "SegmentationClass"},
    {"images", "masks"}, {"images", "labels"}, {"images", "annotations"}, {"images", "annot"},
};

/* The path with the last folder that is called `name` called `other`; NULL: there is none. */
static char *replaced(const char *path, const char *name, const char *other)
{
    size_t length = strlen(name);
    for (const char *at = path + strlen(path); at >= path; at--) {
        if ((at > path && at[-1] != '/') || strncmp(at, name, length) != 0) continue;
        if (at[length] == '\0' || at[length] == '/')
            return text_format("%.*s%s%s", (int)(at - path), path, other, at + length);
    }
    return NULL;
}

/* The folder of masks for a folder that has the images itself: ROOTannot, or by the layouts. */
static bool find_opposite(const char *root, struct mask_pairs *pairs)
{
    char *path = text_format("%sannot", root);
    for (size_t i = 0; !path || !directory_is(path); i++) {
        free(path);
        if (i == sizeof layouts / sizeof *layouts) return false;
        path = replaced(root, layouts[i].images, layouts[i].masks);
    }
    pairs->images = text_copy(root);
    pairs->masks = path;
    return true;
}

/* ROOT/ImageSets/Segmentation/NAME.txt, a list of images without their extensions. */
static bool find_list(const char *path, struct mask_pairs *pairs)
{
    static const char *const below = "ImageSets/Segmentation/";
    const char *slash = strrchr(path, '/'), *set = slash ? slash + 1 - strlen(below) : path;
    if (!text_ends_in(path, ".txt") || set < path || strncmp(set, below, strlen(below)) != 0) return false;
    pairs->images = text_format("%.*sJPEGImages", (int)(set - path), path);
    pairs->masks = text_format("%.*sSegmentationClass", (int)(set - path), path);
    pairs->list = path;
    return true;
}

/* The folder of masks beside the images. */
static bool find_beside(const char *root, struct mask_pairs *pairs, struct reason *reason)
{
    pairs->images = text_format("%s/images", root);
    if (!directory_is(pairs->images))
        return because(reason, "%s: has no folder images, with one of masks beside it", root);
    for (int i = 0; i < FOLDERS; i++) {
        char *path = text_format("%s/%s", root, mask_folders[i]);
        bool there = directory_is(path);
        if (there && pairs->masks) {
            because(reason, "%s: two folders of masks: %s and %s", root, pairs->masks, path);
            free(path);
            return false;
        }
        if (there) pairs->masks = path;
        else free(path);
    }
    return pairs->masks || because(reason, "%s: has images, but no folder masks, labels, annotations or "
                                   "annot beside it", root);
}

static bool find_folders(const char *given, struct mask_pairs *pairs, struct reason *reason)
{
    size_t length = strlen(given);
    while (length > 1 && given[length - 1] == '/') length--;
    char *root = text_format("%.*s", (int)length, given), *images = text_format("%s/images", root);
    bool known = find_list(given, pairs) || (!directory_is(images) && find_opposite(root, pairs));
    bool good = known || find_beside(root, pairs, reason);
    free(images);
    free(root);
    return good;
}

/* True if there is a PNG file in the folder, or in one below it. */
static bool holds_png(const char *path, int depth)
{
    DIR *folder = opendir(path);
    bool holds = false;
    for (struct dirent *entry; folder && !holds && (entry = readdir(folder));) {
        char *below = text_format("%s/%s", path, entry->d_name);
        bool shown = entry->d_name[0] != '.';
        holds = shown && (text_ends_in(entry->d_name, ".png") || text_ends_in(entry->d_name, ".PNG") ||
                          (depth > 0 && directory_is(below) && holds_png(below, depth - 1)));
        free(below);
    }
    if (folder) closedir(folder);
    return holds;
}

bool mask_pairs_has(const char *root)
{
    struct mask_pairs pairs = {0};
    struct reason reason;
    bool has = find_folders(root, &pairs, &reason) && directory_is(pairs.masks) && holds_png(pairs.masks, 2);
    mask_pairs_free(&pairs);
    return has;
}

/* The words of a list, sorted. */
static char **read_list(const char *text, size_t *count)
{
    static const char blanks[] = " \t\r\n";
    char **names = NULL;
    for (const char *at = text + strspn(text, blanks); *at; at += strspn(at, blanks)) {
        size_t length = strcspn(at, blanks);
        *array_push(names, *count) = text_format("%.*s", (int)length, at);
        at += length;
    }
    if (*count > 0) text_list_sort(names, *count);
    return names;
}

/* Leaves only the images in the list. */
static enum status keep_listed(struct mask_pairs *pairs)
{
    struct reason reason;
    char *text;
    size_t bytes, count = 0, kept = 0;
    if (!directory_read(&directory_working, pairs->list, LIST_BYTES_MAX, &text, &bytes, &reason))
        return fail(BAD_DATA, "%s: cannot be read: %s", pairs->list, reason.text);
    char **names = read_list(text, &count);
    bool *found = memory_new(count + 1, sizeof *found);
    for (size_t i = 0; i < pairs->listed.count; i++) {
        char *stem = stem_of(listed_name(&pairs->listed, i));
        char *const *name = count ? bsearch(&stem, names, count, sizeof *names, text_compare) : NULL;
        free(stem);
        if (!name) continue;
        found[name - names] = true;
        pairs->listed.files[kept++] = pairs->listed.files[i];
    }
    pairs->listed.count = kept;
    enum status status = OK;
    for (size_t i = 0; i < count && status == OK; i++)
        if (!found[i])
            status = fail(BAD_DATA, "%s: names %s, but there is no such image in %s", pairs->list, names[i],
                          pairs->images);
    text_list_free(names, count);
    free(found);
    free(text);
    return status;
}

static struct stem *stems_of(const struct listing *images)
{
    struct stem *stems = memory_new(images->count + 1, sizeof *stems);
    for (size_t i = 0; i < images->count; i++) stems[i] = (struct stem){stem_of(listed_name(images, i)), i};
    qsort(stems, images->count, sizeof *stems, text_compare);
    return stems;
}

static const struct stem *find_stem(const struct stem *stems, size_t count, char *name)
{
    const struct stem wanted = {name, 0};
    return bsearch(&wanted, stems, count, sizeof wanted, text_compare);
}

/* The image that a mask belongs to; NULL: none. */
static const struct stem *find_image(const struct stem *stems, size_t count, const char *mask)
{
    char *name = stem_of(mask);
    const struct stem *found = find_stem(stems, count, name);
    for (int i = 0; i < ENDINGS && !found; i++) {
        if (!text_ends_in(name, endings[i][0])) continue;
        size_t length = strlen(name) - strlen(endings[i][0]);
        char *other = text_format("%.*s%s", (int)length, name, endings[i][1]);
        found = find_stem(stems, count, other);
        free(other);
    }
    free(name);
    return found;
}

static enum status check_stems(const struct mask_pairs *pairs, const struct stem *stems)
{
    for (size_t i = 1; i < pairs->listed.count; i++)
        if (strcmp(stems[i - 1].name, stems[i].name) == 0)
            return fail(BAD_DATA, "%s: %s and %s would have the same mask", pairs->images,
                        listed_name(&pairs->listed, stems[i - 1].place),
                        listed_name(&pairs->listed, stems[i].place));
    return OK;
}

static enum status take_masks(struct mask_pairs *pairs, const struct listing *masks, const struct stem *stems)
{
    size_t left_out = 0;
    const char *example = NULL;
    for (size_t i = 0; i < masks->count; i++) {
        const char *name = listed_name(masks, i);
        const struct stem *image = find_image(stems, pairs->listed.count, name);
        bool usual = pairs->list || strstr(name, "_gtFine_");
        if (!image && !usual && left_out++ == 0) example = name;
        if (!image) continue;
        char **mask = &pairs->names[image->place];
        if (*mask)
            return fail(BAD_DATA, "%s: two masks for the image %s: %s and %s", pairs->masks,
                        listed_name(&pairs->listed, image->place), *mask, name);
        *mask = text_copy(name);
    }
    if (left_out > 0)
        log_warning("%s: masks without an image are left out: %zu, such as %s", pairs->masks, left_out,
                    example);
    return OK;
}

static enum status check_complete(const struct mask_pairs *pairs)
{
    size_t missing = 0, first = 0;
    for (size_t i = pairs->listed.count; i-- > 0;)
        if (!pairs->names[i]) missing++, first = i;
    if (missing == 0) return OK;
    const char *name = listed_name(&pairs->listed, first);
    char *stem = stem_of(name);
    enum status status =
        fail(BAD_DATA, "%s: %zu of %zu images have no mask, such as %s: there is no %s/%s.png", pairs->images,
             missing, pairs->listed.count, name, pairs->masks, stem);
    free(stem);
    return status;
}

static enum status pair(struct mask_pairs *pairs, const struct listing *masks)
{
    struct stem *stems = stems_of(&pairs->listed);
    enum status status = check_stems(pairs, stems);
    if (status == OK) status = take_masks(pairs, masks, stems);
    if (status == OK) status = check_complete(pairs);
    for (size_t i = 0; i < pairs->listed.count; i++) free(stems[i].name);
    free(stems);
    return status;
}

static enum status find_pairs(const char *root, struct mask_pairs *pairs)
{
    struct listing masks = {0};
    struct reason reason;
    if (!find_folders(root, pairs, &reason) || !listing_images(pairs->images, &pairs->listed, &reason) ||
        !listing_images(pairs->masks, &masks, &reason))
        return fail(BAD_DATA, "%s", reason.text);
    listing_warn(pairs->images, &pairs->listed);
    enum status status = pairs->list ? keep_listed(pairs) : OK;
    pairs->names = memory_new(pairs->listed.count + 1, sizeof *pairs->names);
    if (status == OK && pairs->listed.count == 0)
        status = fail(BAD_DATA, "%s: no PNG, JPEG, WebP or TIFF image in it", pairs->images);
    if (status == OK) status = pair(pairs, &masks);
    listing_free(&masks);
    return status;
}

enum status mask_pairs_find(const char *root, struct mask_pairs *pairs)
{
    struct mask_pairs found = {0};
    enum status status = find_pairs(root, &found);
    if (status == OK) *pairs = found;
    else mask_pairs_free(&found);
    return status;
}

void mask_pairs_free(struct mask_pairs *pairs)
{
    text_list_free(pairs->names, pairs->listed.count);
    listing_free(&pairs->listed);
    free(pairs->images);
    free(pairs->masks);
    *pairs = (struct mask_pairs){0};
}
