#include "data/dataset/masks.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

#define NAME_ROOM 128

static bool read_by(const struct dataset *dataset, const struct mask_classes *classes, int64_t index,
                    struct image *mask, bool *wrong, struct reason *reason)
{
    struct reason why;
    uint8_t *bytes;
    size_t count;
    *wrong = false;
    if (dataset->format->masks->read) return dataset->format->masks->read(dataset, index, mask, reason);
    if (!dataset_mask_file(dataset, index, &bytes, &count, reason)) return false;
    bool good = mask_decode(bytes, count, classes, mask, wrong, &why);
    free(bytes);
    if (good) return true;
    char *name = dataset->format->masks->path(dataset, index);
    because_of(reason, name, why.text);
    free(name);
    return false;
}

bool masks_read(const struct dataset *dataset, int64_t index, struct image *mask, bool *wrong,
                struct reason *reason)
{
    return read_by(dataset, dataset->masks, index, mask, wrong, reason);
}

bool masks_fit(const struct dataset *dataset, int64_t index, const struct image *mask, struct reason *reason)
{
    struct image_facts facts;
    struct reason why;
    if (!dataset_image_facts(dataset, index, &facts, &why)) return true;
    struct image_size size = facts.size;
    if (size.h == mask->h && size.w == mask->w) return true;
    char *path = dataset_image_path(dataset, index);
    because(&why, "%dx%d pixels, but the mask has %dx%d", size.w, size.h, mask->w, mask->h);
    if (path) because_of(reason, path, why.text);
    else because(reason, "image %" PRId64 ": %s", index, why.text);
    free(path);
    return false;
}

/* A search through all masks. */
struct search {
    const struct dataset *dataset;
    const int64_t *subset;     /* NULL: all images */
    int64_t count;
    const struct mask_classes *classes;
    bool fit;                  /* sizes are compared with the images' */
    bool until_third;          /* it ends when a value other than 0 and 255 was found */
    struct mask_counts *counts;
    atomic_bool ended;
    int64_t wrong;             /* the place of the first image whose mask is wrong; count: none */
    struct reason why;
    int64_t unreadable;        /* the first one, likewise */
    struct reason why_unreadable;
};

static void count_pixels(const struct image *mask, int64_t pixels[256])
{
    size_t count = (size_t)mask->h * (size_t)mask->w;
    for (size_t i = 0; i < count; i++) pixels[mask->pixels[i]]++;
}

static void add_mask(struct search *search, const int64_t pixels[256])
{
    struct mask_counts *counts = search->counts;
    for (int i = 0; i < 256; i++) {
        counts->pixels[i] += pixels[i];
        counts->with[i] += pixels[i] > 0;
        if (search->until_third && pixels[i] > 0 && i != 0 && i != 255) atomic_store(&search->ended, true);
    }
}

static void search_one(struct search *search, int64_t place, struct image *mask)
{
    struct reason reason;
    int64_t index = search->subset ? search->subset[place] : place;
    int64_t pixels[256] = {0};
    bool wrong, good = read_by(search->dataset, search->classes, index, mask, &wrong, &reason);
    if (good && search->fit) wrong = !(good = masks_fit(search->dataset, index, mask, &reason));
    if (good) count_pixels(mask, pixels);
#pragma omp critical(masks_search)
    {
        search->counts->masks++;
        if (good) add_mask(search, pixels);
        else search->counts->unreadable++;
        if (wrong && place < search->wrong) {
            search->wrong = place;
            search->why = reason;
        } else if (!good && !wrong && place < search->unreadable) {
            search->unreadable = place;
            search->why_unreadable = reason;
        }
    }
}

/* Reads masks; BAD_DATA if one is wrong, or none can be read. */
static enum status search_all(struct search *search)
{
    int64_t count = search->count;
    *search->counts = (struct mask_counts){0};
    search->wrong = search->unreadable = count;
    atomic_init(&search->ended, false);
#pragma omp parallel
    {
        struct image mask = {0};
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < count; i++)
            if (!atomic_load(&search->ended)) search_one(search, i, &mask);
        image_free(&mask);
    }
    if (search->wrong < count) return fail(BAD_DATA, "%s", search->why.text);
    if (search->counts->unreadable == search->counts->masks)
        return fail(BAD_DATA, "%s; nor can any other mask be read", search->why_unreadable.text);
    return OK;
}

enum status masks_count(const struct dataset *dataset, const int64_t *subset, int64_t count,
                        struct mask_counts *counts)
{
    struct search search = {
        .dataset = dataset, .subset = subset, .count = count, .classes = dataset->masks, .fit = true,
        .counts = counts};
    return search_all(&search);
}

/* The values of masks whose classes are not known; only until a third one, if the number of classes is. */
static enum status look_at_values(const struct dataset *dataset, bool until_third, struct mask_counts *counts)
{
    struct mask_classes any;
    mask_classes_any(&any);
    struct search search = {.dataset = dataset, .count = dataset->count, .classes = &any,
                            .until_third = until_third, .counts = counts};
    enum status status = search_all(&search);
    mask_classes_free(&any);
    return status;
}

static bool has_two_values(const struct mask_counts *counts)
{
    for (int i = 1; i < 255; i++)
        if (counts->pixels[i] > 0) return false;
    return counts->pixels[255] > 0;
}

/* The classes of masks that are numbers: as many as are named, or as there are. */
static enum status define_numbers(const struct dataset_options *opening, char **names, int named,
                                  struct dataset *dataset)
{
    const struct mask_options *options = &opening->masks;
    struct mask_counts counts = {0};
    int classes = named;
    bool two = named == 0 || named == 2;
    if (two) TRY(look_at_values(dataset, named == 2, &counts));
    if (two && has_two_values(&counts)) {
        bool own = named == 2 && strcmp(names[0], "0") != 0;
        mask_classes_two(own ? names : NULL, dataset->masks);
        return OK;
    }
    for (int i = 0; named == 0 && i < 256; i++)
        if (counts.pixels[i] > 0 && (i != MASK_IGNORE || !options->ignore)) classes = i + 1;
    if (classes > MASK_CLASSES_MAX)
        return fail(BAD_DATA, "%s: masks have the value 255, which can be no class; data.ignore = 255 leaves "
                    "it out", opening->path);
    mask_classes_numbers(classes ? classes : 1, names, named, options->ignore, dataset->masks);
    return OK;
}

static enum status define(const struct dataset_options *opening, struct dataset *dataset)
{
    const struct mask_options *options = &opening->masks;
    char **names = NULL;
    int named = 0;
    if (options->known) {
        mask_classes_copy(options->known, dataset->masks);
        return OK;
    }
    if (options->palette) return mask_classes_read(options->palette, dataset->masks);
    if (options->classes) TRY(mask_class_names(options->classes, options->classes_path, &names, &named));
    enum status status = define_numbers(opening, names, named, dataset);
    text_list_free(names, (size_t)named);
    return status;
}

enum status dataset_define_masks(const struct dataset_options *options, struct dataset *dataset)
{
    dataset->masks = memory_new(1, sizeof *dataset->masks);
    TRY(define(options, dataset));
    text_list_free(dataset->class_names, (size_t)dataset->classes);
    dataset->numbered = false;
    dataset->classes = dataset->masks->classes;
    dataset->class_names = text_list(dataset->masks->names, dataset->classes, dataset->classes);
    return OK;
}

void masks_describe(const struct dataset *dataset, const struct mask_counts *counts, struct text *out)
{
    int64_t counted = 0, ignored = counts->pixels[MASK_IGNORE];
    char shown[NAME_ROOM];
    for (int i = 0; i < dataset->classes; i++) counted += counts->pixels[i];
    for (int i = 0; i < dataset->classes; i++)
        text_add(out, "%s%s %.2f %%", i ? ", " : "",
                 text_visible(dataset->class_names[i], shown, sizeof shown),
                 counted ? 100.0 * (double)counts->pixels[i] / (double)counted : 0.0);
    if (ignored > 0)
        text_add(out, ", ignored %.2f %% of all", 100.0 * (double)ignored / (double)(counted + ignored));
}

int masks_missing(const struct dataset *dataset, const struct mask_counts *counts, struct text *out)
{
    char shown[NAME_ROOM];
    int missing = 0;
    for (int i = 0; i < dataset->classes; i++)
        if (counts->pixels[i] == 0)
            text_add(out, "%s%s", missing++ ? ", " : "",
                     text_visible(dataset->class_names[i], shown, sizeof shown));
    return missing;
}
