/* dataset_identity_compare.c: what differs between two data sets, as far as their identities tell. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset_identity_parts.h"

#define LISTED 4               /* differences that are listed */
#define FOUND_MAX (2 * IDENTITY_CELLS)
#define NAME_ROOM 256

/* An image that only one of the two has. */
struct found {
    struct identity_image image;
    bool now;
};

struct comparison {
    const struct dataset_identity *then, *now;
    struct identity_cell cells[IDENTITY_CELLS];   /* those of `then` without those of `now` */
    struct found found[FOUND_MAX];
    int found_count;
    bool all;                  /* `found` are all of them */
    struct text *text;
    int64_t told;
    int64_t same, differ;      /* images in both samples, by whether their contents are the same */
};

static void subtract(struct comparison *comparison)
{
    for (int i = 0; i < IDENTITY_CELLS; i++) {
        const struct identity_cell *now = &comparison->now->cells[i];
        comparison->cells[i] = comparison->then->cells[i];
        identity_cell_add(&comparison->cells[i], &now->sum, -now->count);
    }
}

/* Whether the cell has a single image left in it. */
static bool is_single(const struct comparison *comparison, int at, struct identity_image *image,
                      uint64_t *hash)
{
    enum { EACH = IDENTITY_CELLS / IDENTITY_TABLES };
    const struct identity_cell *cell = &comparison->cells[at];
    if (cell->count != 1 && cell->count != -1) return false;
    *image = cell->sum;
    identity_image_hash(image, hash);
    return image->check == cell->sum.check && identity_place(*hash, at / EACH) == at;
}

/* Takes images out of cells that have a single one, until there is none; then cells are empty, or the
 * differences are too many. Cells of a forged file may go on for ever: the number is limited. */
static void decode(struct comparison *comparison)
{
    struct identity_image image;
    uint64_t hash;
    bool more = true;
    while (more) {
        more = false;
        for (int i = 0; i < IDENTITY_CELLS && comparison->found_count < FOUND_MAX; i++) {
            if (!is_single(comparison, i, &image, &hash)) continue;
            bool now = comparison->cells[i].count < 0;
            comparison->found[comparison->found_count++] = (struct found){image, now};
            identity_cells_add(comparison->cells, &image, hash, now ? 1 : -1);
            more = true;
        }
    }
    static const struct identity_cell empty;
    comparison->all = true;
    for (int i = 0; i < IDENTITY_CELLS; i++)
        if (memcmp(&comparison->cells[i], &empty, sizeof empty) != 0) comparison->all = false;
}

/* Orders by name, numbers in it as numbers; the older one of an image comes first. */
static int by_name(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    char names[2][IDENTITY_NAME + 1] = {""};
    memcpy(names[0], x->image.name, IDENTITY_NAME);
    memcpy(names[1], y->image.name, IDENTITY_NAME);
    int order = strverscmp(names[0], names[1]);
    if (order) return order;
    if (x->image.key != y->image.key) return x->image.key < y->image.key ? -1 : 1;
    return x->now - y->now;
}

/* Where the next difference goes; NULL: enough are listed. */
static struct text *next_difference(struct comparison *comparison)
{
    if (comparison->told++ >= LISTED) return NULL;
    if (comparison->told > 1) text_add(comparison->text, ", ");
    return comparison->text;
}

static const char *show_name(const struct identity_image *image, char shown[NAME_ROOM])
{
    char name[IDENTITY_NAME + 1] = "";
    memcpy(name, image->name, IDENTITY_NAME);
    bool cut = name[IDENTITY_NAME - 1] != '\0';
    if (cut) memcpy(shown, "...", 4);
    text_visible(name, shown + (cut ? 3 : 0), NAME_ROOM - 3);
    return shown;
}

/* NULL: it is not known, or the image has several labels, a number, or a group. */
static const char *class_of(const struct dataset_identity *identity, const struct identity_image *image,
                            char shown[NAME_ROOM])
{
    for (int i = 0; i < identity->classes; i++)
        if (identity_class_hash(identity->class_names[i]) == image->class)
            return text_visible(identity->class_names[i], shown, NAME_ROOM);
    return NULL;
}

/* An image in both, which differs. */
static void tell_changed(const struct comparison *comparison, const struct found *then,
                         const struct found *now, struct text *text)
{
    char name[NAME_ROOM], rooms[2][NAME_ROOM];
    const char *before = class_of(comparison->then, &then->image, rooms[0]);
    const char *after = class_of(comparison->now, &now->image, rooms[1]);
    show_name(&then->image, name);
    if (then->image.class == now->image.class)
        text_add(text, "%s: contents differ", name);
    else if (before && after)
        text_add(text, "%s was of class '%s' and is now of '%s'", name, before, after);
    else
        text_add(text, "%s: the label or the group differs", name);
}

/* Names of different images may have the same end, so pairs are found by key. */
static void tell_found(struct comparison *comparison)
{
    qsort(comparison->found, (size_t)comparison->found_count, sizeof *comparison->found, by_name);
    for (int i = 0; i < comparison->found_count; i++) {
        const struct found *one = &comparison->found[i], *next = one + 1;
        bool pair = i + 1 < comparison->found_count && next->image.key == one->image.key;
        struct text *text = next_difference(comparison);
        char name[NAME_ROOM];
        if (text && pair) tell_changed(comparison, one, next, text);
        else if (text) text_add(text, "%s is %s", show_name(&one->image, name), one->now ? "new" : "missing");
        i += pair;
    }
}

static bool was_found(const struct comparison *comparison, uint64_t key)
{
    for (int i = 0; comparison->all && i < comparison->found_count; i++)
        if (comparison->found[i].image.key == key) return true;
    return false;
}

/* A sampled image that differs. */
struct odd {
    const char *name;
    bool is_new;
};

static int by_odd_name(const void *a, const void *b)
{
    return strverscmp(((const struct odd *)a)->name, ((const struct odd *)b)->name);
}

/* Images of both samples whose contents differ; with too many differences for the cells also those that are
 * new, as far as the sample has them. */
static int find_odd(struct comparison *comparison, struct odd odd[IDENTITY_SAMPLES])
{
    const struct dataset_identity *then = comparison->then, *now = comparison->now;
    int count = 0;
    for (int i = 0, k = 0; k < now->sampled; k++) {
        const struct identity_sample *sample = &now->samples[k];
        while (i < then->sampled && then->samples[i].key < sample->key) i++;
        if (i == then->sampled) break;
        bool both = then->samples[i].key == sample->key;
        bool differs = both && then->samples[i].crc != sample->crc;
        comparison->same += both && !differs && !was_found(comparison, sample->key);
        comparison->differ += differs;
        bool is_new = !both && !comparison->all;
        if (is_new || (differs && !was_found(comparison, sample->key)))
            odd[count++] = (struct odd){sample->name ? sample->name : "an image", is_new};
    }
    return count;
}

static void tell_samples(struct comparison *comparison)
{
    struct odd odd[IDENTITY_SAMPLES];
    char shown[NAME_ROOM];
    int count = find_odd(comparison, odd);
    qsort(odd, (size_t)count, sizeof *odd, by_odd_name);
    for (int i = 0; i < count; i++) {
        struct text *text = next_difference(comparison);
        if (text)
            text_add(text, odd[i].is_new ? "%s is new" : "%s: contents differ",
                     text_visible(odd[i].name, shown, sizeof shown));
    }
}

/* An image is the same if its name, size and class are and, where both samples have it, its contents. */
static enum identity_change judge(const struct comparison *comparison)
{
    const struct found *found = comparison->found;
    int64_t gone = 0, pairs = 0, kept = 0;
    for (int i = 0; comparison->all && i < comparison->found_count; i++) {
        gone += !found[i].now;
        pairs += i > 0 && found[i].image.key == found[i - 1].image.key;
    }
    if (comparison->all) kept = comparison->then->count - gone;
    bool sampled = comparison->same + comparison->differ > 0;
    bool same = sampled || !comparison->all ? comparison->same > 0 : kept > 0;
    if (same) return IDENTITY_CHANGED;
    return kept > 0 || pairs > 0 || comparison->differ > 0 ? IDENTITY_REPLACED : IDENTITY_OTHER;
}

static void tell_rest(struct comparison *comparison)
{
    struct text *text = comparison->text;
    if (comparison->told > LISTED && comparison->all)
        text_add(text, ", and %" PRId64 " more", comparison->told - LISTED);
    else if (comparison->told > LISTED)
        text_add(text, ", and many more");
    else if (comparison->told == 0)
        text_add(text, comparison->all ? "the same images in another order" : "too many to name them");
    if (comparison->then->count != comparison->now->count)
        text_add(text, " (%" PRId64 " images, now %" PRId64 ")", comparison->then->count,
                 comparison->now->count);
}

/* Images with names and images without cannot be told to be the same: as many may be, packed. */
static enum identity_change compare_numbers(const struct dataset_identity *then,
                                            const struct dataset_identity *now, struct text *differences)
{
    text_add(differences, then->named ? "its images had names, these have numbers"
                                      : "its images had numbers, these have names");
    return then->count == now->count ? IDENTITY_CHANGED : IDENTITY_OTHER;
}

enum identity_change dataset_identity_compare(const struct dataset_identity *then,
                                              const struct dataset_identity *now, struct text *differences)
{
    if (then->named != now->named) return compare_numbers(then, now, differences);
    struct comparison *comparison = memory_new(1, sizeof *comparison);
    *comparison = (struct comparison){.then = then, .now = now, .text = differences};
    subtract(comparison);
    decode(comparison);
    if (comparison->all) tell_found(comparison);
    tell_samples(comparison);
    bool equal = comparison->told == 0 && comparison->all && then->sequence == now->sequence;
    if (!equal) tell_rest(comparison);
    enum identity_change change = equal ? IDENTITY_SAME : judge(comparison);
    free(comparison);
    return change;
}
