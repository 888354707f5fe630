/* dataset_identity.h: what a data set is, wherever it is stored: the number of its images, a hash of names,
 * sizes and classes of all in order, and a sample of images with their contents: those whose names have the
 * smallest hashes, so that two data sets have the same ones in it. Small; two of them tell whether the data
 * sets are the same, and those of the sample that differ. */
#pragma once

#include "base/text.h"
#include "data/dataset/dataset.h"

#define IDENTITY_NAME 40        /* bytes kept of a name, its last ones */
#define IDENTITY_SAMPLES 512

struct identity_sample {
    uint64_t key;               /* the hash of its name, or of its index */
    uint64_t bytes;             /* in its file, or of its pixels; UINT64_MAX: it cannot be read */
    uint32_t class;             /* the hash of its class's name */
    uint32_t crc;               /* CRC-32C of the contents, 0 unless they are `known` */
    bool known;
    char *name;                 /* NULL: written by an older version, which kept only key and crc */
};

struct dataset_identity {
    bool named;                 /* images have names, not only indices */
    int64_t count;              /* images */
    uint64_t sequence;          /* a hash of all of them in order */
    struct identity_sample *samples;   /* [sampled], by key */
    int sampled;
    char *const *class_names;   /* not owned, for messages; [classes] */
    int classes;
};

/* Asks for the size of every file, and reads some: 512, or 32 MiB. */
void dataset_identity_make(const struct dataset *dataset, struct dataset_identity *identity);
void dataset_identity_free(struct dataset_identity *identity);      /* accepts a zeroed struct */

/* To text, 28 kB with names of usual length and 80 kB at most, and back; class names are not part of it. */
void dataset_identity_print(const struct dataset_identity *identity, struct text *out);
bool dataset_identity_parse(const char *text, struct dataset_identity *identity, struct reason *reason);

/* How a data set has changed. */
enum identity_change {
    IDENTITY_SAME,
    IDENTITY_CHANGED,           /* some images of the old one are in the new one */
    IDENTITY_REPLACED,          /* only names of them, as far as is known, with other contents or classes */
    IDENTITY_OTHER,             /* not even those */
};
/* `differences`: the first of those of the sample in words, "a/x.png was of class 'apple' and is now of
 * 'pear', b/y.jpg is new, and 3 more". */
enum identity_change dataset_identity_compare(const struct dataset_identity *then,
                                              const struct dataset_identity *now, struct text *differences);

/* A hash of an image's name, or of its index if images have no names. */
uint64_t dataset_identity_key(const struct dataset *dataset, int64_t index, uint64_t seed);

/* The hash of a class's name. */
uint32_t dataset_identity_class(const char *name);

/* A hash of names and classes of `count` images in order, those of the subset if there is one. */
uint64_t dataset_identity_hash(const struct dataset *dataset, const int64_t *subset, int64_t count);
