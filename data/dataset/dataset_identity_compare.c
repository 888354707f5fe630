/* dataset_identity_compare.c: what differs between two data sets, as far as their identities tell. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset/dataset_identity.h"

#define LISTED 4               /* differences that are listed */
#define NAME_ROOM 256

/* An image of both samples, or of one, the other one being NULL. */
struct difference {
    const struct identity_sample *then, *now;
};

struct comparison {
    const struct dataset_identity *then, *now;
    bool same_sequence;
    struct difference differences[2 * IDENTITY_SAMPLES];
    int count;                 /* of them */
    int both, same;            /* images in both samples, and those that do not differ... */
    int both_known, same_known;    /* ...; the same among images whose contents are known */
};

static const char *name_of(const struct difference *difference)
{
    const struct identity_sample *now = difference->now, *then = difference->then;
    return now && now->name ? now->name : then && then->name ? then->name : "an image";
}

/* Orders by name, numbers in it as numbers. */
static int by_name(const void *a, const void *b)
{
    return strverscmp(name_of(a), name_of(b));
}

/* True if nothing differs that the sample does not show; older versions' has no classes. */
static bool is_complete(const struct dataset_identity *identity)
{
    int count = identity->sampled;
    return count == identity->count && (count == 0 || identity->samples[0].name);
}

/* True if an image with this key would be in the sample. */
static bool covers(const struct dataset_identity *identity, uint64_t key)
{
    int last = identity->sampled - 1;
    return identity->sampled == identity->count || (last >= 0 && key <= identity->samples[last].key);
}

static bool differs(const struct identity_sample *then, const struct identity_sample *now)
{
    bool known = then->known && now->known, whole = then->name && now->name;
    return (known && then->crc != now->crc) ||
           (whole && (then->bytes != now->bytes || then->class != now->class));
}

/* An image of one sample is missing in the other data set only if their sequences differ, too: older
 * versions' samples do not have files that could not be read. */
static void consider(struct comparison *comparison, const struct identity_sample *then,
                     const struct identity_sample *now)
{
    bool known = then && now && then->known && now->known, differ = then && now && differs(then, now);
    comparison->both += then && now;
    comparison->same += then && now && !differ;
    comparison->both_known += known;
    comparison->same_known += known && !differ;
    const struct dataset_identity *other = then ? comparison->now : comparison->then;
    bool alone = !then != !now && !comparison->same_sequence && covers(other, (then ? then : now)->key);
    if (differ || alone)
        comparison->differences[comparison->count++] = (struct difference){then, now};
}

/* Walks through both samples in the order of their keys. */
static void compare_samples(struct comparison *comparison)
{
    const struct dataset_identity *then = comparison->then, *now = comparison->now;
    for (int i = 0, k = 0; i < then->sampled || k < now->sampled;) {
        const struct identity_sample *a = i < then->sampled ? &then->samples[i] : NULL;
        const struct identity_sample *b = k < now->sampled ? &now->samples[k] : NULL;
        if (a && b && a->key < b->key) b = NULL;
        if (a && b && a->key > b->key) a = NULL;
        i += a != NULL;
        k += b != NULL;
        consider(comparison, a, b);
    }
}

/* NULL: it is not known, or the image has several labels, a number, or a group. */
static const char *class_of(const struct dataset_identity *identity, const struct identity_sample *sample,
                            char shown[NAME_ROOM])
{
    for (int i = 0; i < identity->classes; i++)
        if (dataset_identity_class(identity->class_names[i]) == sample->class)
            return text_visible(identity->class_names[i], shown, NAME_ROOM);
    return NULL;
}

static void tell_difference(const struct comparison *comparison, const struct difference *difference,
                            struct text *text)
{
    const struct identity_sample *then = difference->then, *now = difference->now;
    char name[NAME_ROOM], rooms[2][NAME_ROOM];
    text_visible(name_of(difference), name, sizeof name);
    bool both = then && now, other_class = both && then->name && now->name && then->class != now->class;
    const char *before = other_class ? class_of(comparison->then, then, rooms[0]) : NULL;
    const char *after = other_class ? class_of(comparison->now, now, rooms[1]) : NULL;
    if (!both) text_add(text, "%s is %s", name, now ? "new" : "missing");
    else if (before && after)
        text_add(text, "%s was of class '%s' and is now of '%s'", name, before, after);
    else
        text_add(text, other_class ? "%s: the label, the mask or the group differs" : "%s: contents differ",
                 name);
}

/* The first differences, and whether there are or may be more. */
static void tell(struct comparison *comparison, struct text *text)
{
    const struct dataset_identity *then = comparison->then, *now = comparison->now;
    bool complete = is_complete(then) && is_complete(now);
    int count = comparison->count, listed = count < LISTED ? count : LISTED;
    if (count > 0) qsort(comparison->differences, (size_t)count, sizeof *comparison->differences, by_name);
    for (int i = 0; i < listed; i++) {
        if (i > 0) text_add(text, ", ");
        tell_difference(comparison, &comparison->differences[i], text);
    }
    if (count == 0)
        text_add(text, complete ? "the same images in another order"
                                : "differences that the recorded sample does not show");
    else if (count > listed && complete) text_add(text, ", and %d more", count - listed);
    else if (!complete) text_add(text, count > listed ? ", and many more" : ", and perhaps others");
    if (then->count != now->count)
        text_add(text, " (%" PRId64 " images, now %" PRId64 ")", then->count, now->count);
}

/* An image is the same if its name, size and class are and, where they are known, its contents. */
static enum identity_change judge(const struct comparison *comparison)
{
    if (comparison->both_known ? comparison->same_known > 0 : comparison->same > 0) return IDENTITY_CHANGED;
    return comparison->both > 0 ? IDENTITY_REPLACED : IDENTITY_OTHER;
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
    struct comparison comparison = {
        .then = then, .now = now,
        .same_sequence = then->count == now->count && then->sequence == now->sequence,
    };
    compare_samples(&comparison);
    if (comparison.same_sequence && comparison.count == 0) return IDENTITY_SAME;
    tell(&comparison, differences);
    return judge(&comparison);
}
