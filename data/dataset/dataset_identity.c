#include "data/dataset/dataset_identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "base/memory.h"

/* Images that are looked at in parallel. */
#define CHUNK 4096
/* Limit of the files that are read. */
#define READ_MAX (UINT64_C(32) << 20)

/* An image, and a candidate for the sample. */
struct entry {
    struct identity_sample image;      /* without its name */
    int64_t index;
};

struct making {
    const struct dataset *dataset;
    struct dataset_identity *identity;
    uint32_t *classes;         /* hashes of the names */
    struct entry *chosen;      /* [identity->sampled], by key */
};

/* Images without names are told apart by their index. */
static const char *name_of(const struct dataset *dataset, int64_t index, char room[IDENTITY_NAME])
{
    if (dataset->format->image_name) return dataset->format->image_name(dataset, index);
    snprintf(room, IDENTITY_NAME, "image %" PRId64, index);
    return room;
}

/* The group that an image belongs to decides what is held out. */
static uint32_t identity_group_hash(const struct dataset *dataset, int64_t index)
{
    uint64_t group = dataset->format->group ? dataset->format->group(dataset, index) : 0;
    return group ? (uint32_t)hash_bytes(3, &group, sizeof group) : 0;
}

/* The size of the mask, and what the values of all masks mean. */
static uint32_t identity_mask_hash(const struct dataset *dataset, int64_t index, uint32_t meaning)
{
    struct image_contents contents;
    dataset_mask_contents(dataset, index, &contents);
    return (uint32_t)hash_bytes(meaning, &contents.bytes, sizeof contents.bytes);
}

/* The class's hash, or that of the labels in any order, or of the number. */
static uint32_t identity_target_hash(const struct dataset *dataset, int64_t index, const uint32_t *classes)
{
    if (dataset->target == TARGET_CLASS) return classes[dataset->format->label(dataset, index)];
    if (dataset->target == TARGET_MASK) return identity_mask_hash(dataset, index, classes[0]);
    float *target = memory_new((size_t)dataset->classes, sizeof *target);
    uint32_t hash = 0;
    dataset_target(dataset, index, 0, 1, target);
    if (dataset->target == TARGET_NUMBER) hash = (uint32_t)hash_bytes(2, target, sizeof *target);
    for (int i = 0; dataset->target == TARGET_LABELS && i < dataset->classes; i++)
        if (target[i] != 0) hash += classes[i];
    free(target);
    return hash;
}

/* Contents of an image and its mask. */
static uint32_t join_mask(uint32_t crc, uint32_t mask) { return crc32c(crc, &mask, sizeof mask); }

static struct entry entry_of(const struct making *making, int64_t index)
{
    const struct dataset *dataset = making->dataset;
    char room[IDENTITY_NAME];
    const char *name = name_of(dataset, index, room);
    struct image_contents contents = {.bytes = (int64_t)dataset->h * dataset->w * dataset->c};
    if (dataset->format->contents) dataset->format->contents(dataset, index, &contents);
    if (dataset->target == TARGET_MASK) {
        struct image_contents mask;
        dataset_mask_contents(dataset, index, &mask);
        contents.known = contents.known && mask.known;
        contents.crc = contents.known ? join_mask(contents.crc, mask.crc) : 0;
    }
    const struct identity_sample image = {
        .key = hash_bytes(0, name, strlen(name)),
        .bytes = (uint64_t)contents.bytes,
        .class = identity_target_hash(dataset, index, making->classes) + identity_group_hash(dataset, index),
        .crc = contents.crc,
        .known = contents.known,
    };
    return (struct entry){image, index};
}

/* Keeps the entries with the smallest keys. */
static void choose(struct making *making, const struct entry *entry)
{
    int *count = &making->identity->sampled, at = *count;
    if (at == IDENTITY_SAMPLES && entry->image.key >= making->chosen[at - 1].image.key) return;
    if (at < IDENTITY_SAMPLES) (*count)++;
    else at--;
    for (; at > 0 && making->chosen[at - 1].image.key > entry->image.key; at--)
        making->chosen[at] = making->chosen[at - 1];
    making->chosen[at] = *entry;
}

static void add_entry(struct making *making, const struct entry *entry)
{
    struct dataset_identity *identity = making->identity;
    const struct identity_sample *image = &entry->image;
    const uint64_t words[] = {image->key, image->bytes, (uint64_t)image->crc << 32 | image->class};
    uint64_t hash = hash_bytes(1, words, sizeof words);
    identity->sequence = hash_bytes(identity->sequence, &hash, sizeof hash);
    identity->count++;
    choose(making, entry);
}

static void add_images(struct making *making)
{
    struct entry *entries = memory_new(CHUNK, sizeof *entries);
    for (int64_t begin = 0, end; begin < making->dataset->count; begin = end) {
        end = begin + CHUNK < making->dataset->count ? begin + CHUNK : making->dataset->count;
#pragma omp parallel for schedule(dynamic, 64)
        for (int64_t i = begin; i < end; i++) entries[i - begin] = entry_of(making, i);
        for (int64_t i = begin; i < end; i++) add_entry(making, &entries[i - begin]);
    }
    free(entries);
}

/* The file's bytes if there is one, since other versions of decoders may round differently. */
static void read_contents(const struct dataset *dataset, struct entry *entry)
{
    const struct format *format = dataset->format;
    struct image image = {0};
    struct reason reason;
    uint8_t *bytes = NULL;
    size_t count = 0;
    int label;
    bool file = dataset->decoded && format->read_file;
    bool good = file ? format->read_file(dataset, entry->index, &bytes, &count, &label, &reason)
                     : format->read(dataset, entry->index, NULL, &image, &label, &reason);
    if (good && !file) count = (size_t)image.h * (size_t)image.w * (size_t)image.c;
    if (good) entry->image.crc = crc32c(0, file ? bytes : image.pixels, count);
    free(bytes);
    bool masked = dataset->target == TARGET_MASK;
    if (good && masked && (good = dataset_mask_file(dataset, entry->index, &bytes, &count, &reason))) {
        entry->image.crc = join_mask(entry->image.crc, crc32c(0, bytes, count));
        free(bytes);
    }
    entry->image.known = good;
    image_free(&image);
}

static bool is_wanted(const struct identity_sample *image)
{
    return !image->known && image->bytes != UINT64_MAX;
}

/* Reads up to the limit, which is the same for the same sizes. */
static void read_chosen(struct making *making)
{
    struct entry *chosen = making->chosen;
    uint64_t total = 0;
    int count = 0;
    for (; count < making->identity->sampled && total < READ_MAX; count++)
        if (is_wanted(&chosen[count].image)) total += chosen[count].image.bytes;
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < count; i++)
        if (is_wanted(&chosen[i].image)) read_contents(making->dataset, &chosen[i]);
}

static void take_samples(const struct making *making)
{
    struct dataset_identity *identity = making->identity;
    identity->samples = memory_new((size_t)identity->sampled + 1, sizeof *identity->samples);
    for (int i = 0; i < identity->sampled; i++) {
        char room[IDENTITY_NAME];
        const char *name = name_of(making->dataset, making->chosen[i].index, room);
        size_t length = strlen(name);
        identity->samples[i] = making->chosen[i].image;
        identity->samples[i].name = length <= IDENTITY_NAME ? text_copy(name)
                                  : text_format("...%s", name + length - IDENTITY_NAME);
    }
}

/* Hashes by class; with masks the first one is that of all that their values mean. */
static uint32_t *hash_classes(const struct dataset *dataset)
{
    uint32_t *hashes = memory_new((size_t)dataset->classes, sizeof *hashes);
    for (int i = 0; i < dataset->classes; i++) hashes[i] = dataset_identity_class(dataset->class_names[i]);
    if (dataset->masks) hashes[0] = (uint32_t)mask_classes_hash(dataset->masks);
    return hashes;
}

void dataset_identity_make(const struct dataset *dataset, struct dataset_identity *identity)
{
    *identity = (struct dataset_identity){
        .named = dataset->format->image_name, .class_names = dataset->class_names,
        .classes = dataset->classes,
    };
    struct making making = {dataset, identity, hash_classes(dataset), NULL};
    making.chosen = memory_new(IDENTITY_SAMPLES, sizeof *making.chosen);
    add_images(&making);
    read_chosen(&making);
    take_samples(&making);
    free(making.chosen);
    free(making.classes);
}

void dataset_identity_free(struct dataset_identity *identity)
{
    for (int i = 0; i < identity->sampled; i++) free(identity->samples[i].name);
    free(identity->samples);
    *identity = (struct dataset_identity){0};
}

uint32_t dataset_identity_class(const char *name)
{
    return (uint32_t)hash_bytes(2, name, strlen(name));
}

uint64_t dataset_identity_key(const struct dataset *dataset, int64_t index, uint64_t seed)
{
    char room[IDENTITY_NAME];
    const char *name = name_of(dataset, index, room);
    return hash_bytes(seed, name, strlen(name));
}

uint64_t dataset_identity_hash(const struct dataset *dataset, const int64_t *subset, int64_t count)
{
    uint32_t *classes = hash_classes(dataset);
    uint64_t hash = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t index = subset ? subset[i] : i;
        hash = dataset_identity_key(dataset, index, hash);
        uint32_t target = identity_target_hash(dataset, index, classes);
        hash = hash_bytes(hash, &target, sizeof target);
    }
    free(classes);
    return hash;
}
