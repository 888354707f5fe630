#include "cmd/init_masks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/formats/mask_pairs.h"
#include "data/image/mask.h"

#define LOOKED_AT 2000         /* masks */

/* Classes of published sets, by the names of images. */
static const struct known_set {
    const char *name, *in_path, *palette;
    uint32_t largest;          /* number in their masks, but for 255 */
} known_sets[] = {
    {"CamVid", "0001TP_0",
     "0 = sky\n1 = building\n2 = pole\n3 = road\n4 = pavement\n5 = tree\n6 = sign\n7 = fence\n8 = car\n"
     "9 = pedestrian\n10 = bicyclist\n11 = ignore          ; unlabelled\n", 11},
    {"VOC", "JPEGImages",
     "0 = background\n1 = aeroplane\n2 = bicycle\n3 = bird\n4 = boat\n5 = bottle\n6 = bus\n7 = car\n8 = cat\n"
     "9 = chair\n10 = cow\n11 = diningtable\n12 = dog\n13 = horse\n14 = motorbike\n15 = person\n"
     "16 = pottedplant\n17 = sheep\n18 = sofa\n19 = train\n20 = tvmonitor\n"
     "255 = ignore         ; outlines\n", 20},
    {"Cityscapes", "leftImg8bit",
     "7 = road\n8 = sidewalk\n11 = building\n12 = wall\n13 = fence\n17 = pole\n19 = traffic light\n"
     "20 = traffic sign\n21 = vegetation\n22 = terrain\n23 = sky\n24 = person\n25 = rider\n26 = car\n"
     "27 = truck\n28 = bus\n31 = train\n32 = motorcycle\n33 = bicycle\nother = ignore       ; void\n", 33},
};

/* VOC's lists. */
static bool find_lists(const char *folder, struct detected_splits *splits)
{
    char *train = text_format("%s/ImageSets/Segmentation/train.txt", folder);
    char *val = text_format("%s/ImageSets/Segmentation/val.txt", folder);
    bool lists = mask_pairs_has(train) && directory_has(&directory_working, train);
    bool both = lists && directory_has(&directory_working, val);
    *splits = (struct detected_splits){lists ? train : NULL, both ? val : NULL, NULL};
    if (!lists) free(train);
    if (!both) free(val);
    return lists;
}

bool init_masks_find(const char *folder, struct detected_splits *splits)
{
    static const char *const below[] = {"images", "leftImg8bit", "img_dir", "."};
    if (find_lists(folder, splits)) return true;
    for (size_t i = 0; i < sizeof below / sizeof *below && !splits->train; i++) {
        char *path = strcmp(below[i], ".") == 0 ? text_copy(folder) : text_format("%s/%s", folder, below[i]);
        detect_splits(path, mask_pairs_has, splits);
        free(path);
    }
    if (!splits->train && mask_pairs_has(folder)) splits->train = text_copy(folder);
    return splits->train != NULL;
}

/* The values. */

/* A search through the masks. */
struct looking {
    const struct dataset *dataset;
    struct mask_values *values;
    int64_t wanted, unreadable, first;
    struct reason why;         /* of the first one that cannot be read */
};

static void look_at(struct looking *looking, int64_t place)
{
    const struct dataset *dataset = looking->dataset;
    struct mask_values own = {0};
    struct reason reason, why;
    uint8_t *bytes;
    size_t count;
    int64_t index = place * dataset->count / looking->wanted;
    bool good = dataset_mask_file(dataset, index, &bytes, &count, &reason);
    if (good) {
        char *path = dataset->format->masks->path(dataset, index);
        good = mask_values_add(bytes, count, &own, &why) || because_of(&reason, path, why.text);
        free(path);
        free(bytes);
    }
#pragma omp critical(init_masks)
    {
        if (good) mask_values_merge(&own, looking->values);
        else if (looking->unreadable++ == 0 || place < looking->first)
            looking->first = place, looking->why = reason;
    }
    mask_values_free(&own);
}

static const struct known_set *known_set_of(const struct dataset *dataset, const struct mask_values *values)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < values->count; i++)
        if (values->list[i].value != MASK_IGNORE) largest = values->list[i].value;
    for (size_t i = 0; i < sizeof known_sets / sizeof *known_sets; i++) {
        char *path = dataset_image_path(dataset, 0);
        bool is = path && strstr(path, known_sets[i].in_path) && !values->colours;
        free(path);
        if (is && largest <= known_sets[i].largest) return &known_sets[i];
    }
    return NULL;
}

/* The kinds of masks, and what the classes are by each. */

static bool are_two(const struct mask_values *values)
{
    const struct mask_value *list = values->list;
    return values->numbers && values->count == 2 && list[0].value == 0 && list[1].value == 255;
}

/* Numbers from 0 on of which more than half are there. */
static bool are_dense(const struct mask_values *values)
{
    size_t count = values->count;
    if (count > 0 && values->list[count - 1].value == MASK_IGNORE) count--;
    return values->numbers && count > 0 && values->list[count - 1].value < 2 * count;
}

static int by_pixels(const void *a, const void *b)
{
    const struct mask_value *x = a, *y = b;
    if ((x->value == 0) != (y->value == 0)) return x->value == 0 ? -1 : 1;
    if (x->pixels != y->pixels) return x->pixels < y->pixels ? 1 : -1;
    return (x->value > y->value) - (x->value < y->value);
}

/* A palette of the values that were seen: 0, or black, comes first, then what is frequent. */
static char *palette_of(const struct mask_values *values)
{
    struct text out = {0};
    struct mask_value *sorted = memory_new(values->count, sizeof *sorted);
    memcpy(sorted, values->list, values->count * sizeof *sorted);
    qsort(sorted, values->count, sizeof *sorted, by_pixels);
    for (size_t i = 0; i < values->count; i++) {
        uint32_t value = sorted[i].value;
        bool ignored = values->numbers && value == MASK_IGNORE;
        if (values->colours) text_add(&out, "%u %u %u = ", value >> 16, value >> 8 & 255, value & 255);
        else text_add(&out, "%u = ", value);
        if (ignored) text_add(&out, "ignore\n");
        else text_add(&out, "class%zu           ; %" PRId64 " pixels\n", i, sorted[i].pixels);
    }
    free(sorted);
    return out.data;
}

static enum status define(const struct dataset *dataset, const struct mask_values *values,
                          struct init_masks *masks)
{
    const struct known_set *set = known_set_of(dataset, values);
    uint32_t largest = values->list[values->count - 1].value;
    masks->kind = set ? set->name : values->colours ? "colours" : values->palette ? "numbers, with a palette"
                                                                                  : "numbers";
    masks->two = !set && are_two(values);
    if (largest == MASK_IGNORE && values->count > 1) largest = values->list[values->count - 2].value;
    if (set) masks->palette = text_copy(set->palette);
    else if (!masks->two && !are_dense(values)) masks->palette = palette_of(values);
    if (masks->palette) TRY(mask_classes_parse(masks->palette, &masks->classes));
    else if (masks->two) mask_classes_two(NULL, &masks->classes);
    else mask_classes_numbers((int)largest + 1, NULL, 0, true, &masks->classes);
    if (masks->two) masks->kind = "0 and 255";
    for (size_t i = 0; i < values->count; i++) {
        uint32_t value = values->list[i].value;
        int class = values->colours ? mask_classes_colour(&masks->classes, value)
                                    : masks->classes.numbers[value];
        if (class >= 0) masks->counts.pixels[class] += values->list[i].pixels;
    }
    return OK;
}

enum status init_masks_look(const struct dataset *dataset, struct init_masks *masks)
{
    struct mask_values values = {0};
    struct looking looking = {
        dataset, &values, .wanted = dataset->count < LOOKED_AT ? dataset->count : LOOKED_AT};
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < looking.wanted; i++) look_at(&looking, i);
    enum status status = OK;
    if (looking.unreadable == looking.wanted)
        status = fail(BAD_DATA, "%s; nor can any other mask be read", looking.why.text);
    else if (looking.unreadable > 0)
        log_warning("%s; masks that cannot be read: %" PRId64, looking.why.text, looking.unreadable);
    if (status == OK && values.colours && values.numbers)
        status = fail(BAD_DATA, "some masks have colours, and some have numbers");
    if (status == OK) status = define(dataset, &values, masks);
    mask_values_free(&values);
    return status;
}

void init_masks_free(struct init_masks *masks)
{
    free(masks->palette);
    mask_classes_free(&masks->classes);
    *masks = (struct init_masks){0};
}
