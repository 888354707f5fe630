#include "data/formats/mask_pairs.h"

#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

static const char *const mask_folders[] = {"masks", "labels", "annotations", "annot"};
static const char *const mask_endings[] = {"_mask", "_label", "_gt", "_L"};
enum { FOLDERS = sizeof mask_folders / sizeof *mask_folders };
enum { ENDINGS = sizeof mask_endings / sizeof *mask_endings };

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

/* The folder of masks beside the images. */
static enum status find_folders(const char *root, struct mask_pairs *pairs)
{
    pairs->images = text_format("%s/images", root);
    if (!directory_is(pairs->images))
        return fail(BAD_DATA, "%s: has no folder images, with one of masks beside it", root);
    for (int i = 0; i < FOLDERS; i++) {
        char *path = text_format("%s/%s", root, mask_folders[i]);
        bool there = directory_is(path);
        if (there && pairs->masks) {
            enum status status =
                fail(BAD_DATA, "%s: two folders of masks: %s and %s", root, pairs->masks, path);
            free(path);
            return status;
        }
        if (there) pairs->masks = path;
        else free(path);
    }
    if (pairs->masks) return OK;
    return fail(BAD_DATA, "%s: has images, but no folder masks, labels, annotations or annot beside it",
                root);
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
        if (!text_ends_in(name, mask_endings[i])) continue;
        name[strlen(name) - strlen(mask_endings[i])] = '\0';
        found = find_stem(stems, count, name);
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
        if (!image && left_out++ == 0) example = name;
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
    TRY(find_folders(root, pairs));
    if (!listing_images(pairs->images, &pairs->listed, &reason) ||
        !listing_images(pairs->masks, &masks, &reason))
        return fail(BAD_DATA, "%s", reason.text);
    listing_warn(pairs->images, &pairs->listed);
    pairs->names = memory_new(pairs->listed.count + 1, sizeof *pairs->names);
    enum status status = pairs->listed.count > 0 ? pair(pairs, &masks)
                                                 : fail(BAD_DATA, "%s: no PNG, JPEG or WebP image in it",
                                                        pairs->images);
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
