/* dataset_identity.h: what a data set is, wherever it is stored: names, sizes and classes of all its images
 * in order, and the contents of a sample; small, and two of them tell the first images that differ.
 *
 * Every image is added to three cells of a table by its hash. The cells of two data sets subtract, and what
 * is left gives the images that only one of them has, up to about fifty: an invertible Bloom lookup table, as
 * in Eppstein, Goodrich, Uyeda, Varghese: What's the difference? Efficient set reconciliation without prior
 * context (SIGCOMM 2011). The sample is the images whose names have the smallest hashes. */
#pragma once

#include "base/text.h"
#include "data/dataset.h"

#define IDENTITY_CELLS 96
#define IDENTITY_NAME 40        /* bytes kept of a name, its last ones */
#define IDENTITY_SAMPLES 512

/* Facts about an image; cells have the sum of those in them, member by member, bit for bit (exclusive
 * or). */
struct identity_image {
    uint64_t key;               /* the hash of its name, or of its index */
    uint64_t bytes;             /* in its file, or of its pixels; UINT64_MAX: it cannot be read */
    uint32_t crc;               /* of its contents, where it is known without reading files; else 0 */
    uint32_t class;             /* the hash of its class's name */
    uint32_t check;             /* a hash of all of these */
    char name[IDENTITY_NAME];   /* the end of it, followed by zeros if that is all */
};

struct identity_cell {
    int64_t count;
    struct identity_image sum;
};

struct identity_sample {
    uint64_t key;
    uint32_t crc;               /* CRC-32C of the contents */
    char *name;                 /* NULL in a parsed identity */
};

struct dataset_identity {
    bool named;                 /* images have names, not only indices */
    int64_t count;              /* images */
    uint64_t sequence;          /* a hash of all of them in order */
    struct identity_cell cells[IDENTITY_CELLS];
    struct identity_sample *samples;   /* [sampled], by key */
    int sampled;
    char *const *class_names;   /* not owned, for messages; [classes] */
    int classes;
};

/* Asks for the size of every file, and reads some: 512, or 32 MiB. */
void dataset_identity_make(const struct dataset *dataset, struct dataset_identity *identity);
void dataset_identity_free(struct dataset_identity *identity);      /* accepts a zeroed struct */

/* To text of up to 28 kB, and back; class names are not part of it. */
void dataset_identity_print(const struct dataset_identity *identity, struct text *out);
bool dataset_identity_parse(const char *text, struct dataset_identity *identity, struct reason *reason);

/* How a data set has changed. */
enum identity_change {
    IDENTITY_SAME,
    IDENTITY_CHANGED,           /* some images of the old one are in the new one */
    IDENTITY_REPLACED,          /* only names of them, as far as is known, with other contents or classes */
    IDENTITY_OTHER,             /* not even those */
};
/* `differences`: the first of them in words, "a/x.png was of class 'apple' and is now of 'pear', b/y.jpg is
 * new, and 3 more". */
enum identity_change dataset_identity_compare(const struct dataset_identity *then,
                                              const struct dataset_identity *now, struct text *differences);

/* A hash of an image's name, or of its index if images have no names. */
uint64_t dataset_identity_key(const struct dataset *dataset, int64_t index, uint64_t seed);

/* A hash of names and classes of `count` images in order, those of the subset if there is one. */
uint64_t dataset_identity_hash(const struct dataset *dataset, const int64_t *subset, int64_t count);
