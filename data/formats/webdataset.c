/* webdataset.c: samples in a tar archive, as WebDataset defines them: an image KEY.jpg, KEY.jpeg, KEY.png or
 * KEY.webp and its label KEY.cls: the number of its class, or of several labels, or a number; and, if images
 * are in groups, KEY.group: the name of its group. With masks the label is KEY.mask.png. KEY is the path up
 * to the first dot of the file name; the extension may be in upper case. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/formats/shard.h"
#include "data/formats/tar.h"

/* A sample so far. */
struct sample {
    char *key;
    struct packed_entry entry;
    int images, labels, groups;
    uint64_t group;            /* dataset_group */
    char *other;               /* the name of a member like KEY.seg.png; NULL: none */
    size_t order;              /* of the parts in the archive */
};

/* The labels of a sample, if they are more than a class: their number is the label of its entry. */
struct labelling {
    uint64_t begin;            /* among all labels */
    struct packed_target target;
};

/* The group of the image that begins there. */
struct grouped {
    uint64_t at, group;
};

/* The members of a sample are usually adjacent. Others are kept until all are known. */
struct samples {
    struct shard *shard;
    enum target_kind kind;
    struct packed_entry *masks;        /* in the place of labels: their number is the label of an entry */
    size_t mask_count;
    struct labelling *labellings;
    size_t labelling_count;
    uint32_t *labels;
    uint64_t label_count;
    struct grouped *grouped;   /* images that are in a group */
    size_t grouped_count;
    struct sample now;         /* key NULL: none yet */
    struct sample *loose;
    size_t loose_count, joined;
};

/* Bytes of the key before the dot; 0: the name is not that of a part of a sample. */
static size_t key_length(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    const char *dot = strchr(base, '.');
    return dot && dot > base ? (size_t)(dot - name) : 0;
}

/* A label of seven digits and blanks around it. */
#define LABEL_BYTES 64

static bool read_label(const struct shard *shard, const struct tar_member *member, uint32_t *label,
                       struct reason *reason)
{
    static const char blanks[] = " \t\r\n";
    char text[LABEL_BYTES + 1] = "";
    size_t count = member->bytes < LABEL_BYTES ? member->bytes : LABEL_BYTES;
    if (!shard_read(shard, member->at, text, count, reason)) return false;
    const char *digits = text + strspn(text, blanks), *end = digits + strspn(digits, "0123456789");
    unsigned long value = end - digits > 0 && end - digits <= 7 ? strtoul(digits, NULL, 10) : CLASSES_MAX;
    bool ended = (size_t)(end - text) + strspn(end, blanks) == member->bytes;
    if (!ended || value >= CLASSES_MAX)
        return because(reason, "%s: %.100s is not a class number from 0 to %d", shard->path, member->name,
                       CLASSES_MAX - 1);
    *label = (uint32_t)value;
    return true;
}

#define LABELS_BYTES 65536

/* "1 4 7"; nothing is no label. */
static bool add_labels(struct samples *samples, char *text)
{
    struct packed_target *target = &samples->labellings[samples->labelling_count - 1].target;
    static const char separators[] = " \t\r\n,;";
    char *rest = NULL;
    for (char *at = strtok_r(text, separators, &rest); at; at = strtok_r(NULL, separators, &rest)) {
        size_t digits = strspn(at, "0123456789");
        unsigned long label = strtoul(at, NULL, 10);
        if (digits == 0 || digits > 7 || at[digits] || label >= CLASSES_MAX) return false;
        *array_push(samples->labels, samples->label_count) = (uint32_t)label;
        target->labels++;
    }
    return true;
}

static bool add_number(struct samples *samples, char *text)
{
    struct reason reason;
    double value = 0;
    text[strcspn(text, "\r\n")] = '\0';
    bool good = target_parse_number(text, &value, &reason);
    packed_set_number(&samples->labellings[samples->labelling_count - 1].target, value);
    return good;
}

/* *label: the number of the labelling. */
static bool read_labelling(struct samples *samples, const struct tar_member *member, uint32_t *label,
                           struct reason *reason)
{
    bool number = samples->kind == TARGET_NUMBER;
    if (member->bytes >= LABELS_BYTES)
        return because(reason, "%s: %.100s is too large", samples->shard->path, member->name);
    char *text = memory_new(member->bytes + 1, 1);
    bool read = shard_read(samples->shard, member->at, text, member->bytes, reason);
    *label = (uint32_t)samples->labelling_count;
    const struct labelling none = {.begin = samples->label_count};
    *array_push(samples->labellings, samples->labelling_count) = none;
    bool good = read && (number ? add_number(samples, text) : add_labels(samples, text));
    free(text);
    if (read && !good)
        because(reason, "%s: %.100s is not %s", samples->shard->path, member->name,
                number ? "a number" : "numbers of labels, such as 1 4 7");
    return good;
}

/* *label: the number of the mask. */
static bool read_mask(struct samples *samples, const struct tar_member *member, uint32_t *label,
                      struct reason *reason)
{
    if (member->bytes > IMAGE_FILE_BYTES_MAX)
        return because(reason, "%s: %.100s is too large", samples->shard->path, member->name);
    const struct packed_entry mask = {
        .kind = PACKED_FILE, .at = member->at, .bytes = (uint32_t)member->bytes};
    *label = (uint32_t)samples->mask_count;
    *array_push(samples->masks, samples->mask_count) = mask;
    return true;
}

static void add_entry(struct samples *samples, const struct sample *sample)
{
    *array_push(samples->shard->entries, samples->shard->images) = sample->entry;
    if (sample->group)
        *array_push(samples->grouped, samples->grouped_count) =
            (struct grouped){sample->entry.at, sample->group};
}

static void end_sample(struct samples *samples)
{
    struct sample *now = &samples->now;
    if (now->images && now->labels) {
        add_entry(samples, now);
        free(now->key);
        free(now->other);
    } else if (now->key) {
        now->order = samples->loose_count;
        *array_push(samples->loose, samples->loose_count) = *now;
    }
    *now = (struct sample){.key = NULL};
}

static bool add_image(struct sample *sample, const struct shard *shard, const struct tar_member *member,
                      struct reason *reason)
{
    if (member->bytes > IMAGE_FILE_BYTES_MAX)
        return because(reason, "%s: %.100s is too large", shard->path, member->name);
    if (sample->images++)
        return because(reason, "%s: %.100s is a second image of the same sample", shard->path,
                       member->name);
    sample->entry.kind = PACKED_FILE;
    sample->entry.at = member->at;
    sample->entry.bytes = (uint32_t)member->bytes;
    return true;
}

static bool add_label(struct samples *samples, const struct tar_member *member, struct reason *reason)
{
    struct sample *sample = &samples->now;
    const struct shard *shard = samples->shard;
    if (sample->labels++)
        return because(reason, "%s: %.100s is a second label of the same sample", shard->path,
                       member->name);
    if (samples->kind == TARGET_MASK) return read_mask(samples, member, &sample->entry.label, reason);
    if (samples->kind > TARGET_CLASS) return read_labelling(samples, member, &sample->entry.label, reason);
    return read_label(shard, member, &sample->entry.label, reason);
}

#define GROUP_BYTES 1024

static bool add_group(struct samples *samples, const struct tar_member *member, struct reason *reason)
{
    struct sample *sample = &samples->now;
    const char *path = samples->shard->path;
    char name[GROUP_BYTES];
    if (member->bytes >= sizeof name) return because(reason, "%s: %.100s is too large", path, member->name);
    if (sample->groups++)
        return because(reason, "%s: %.100s is a second group of the same sample", path, member->name);
    if (!shard_read(samples->shard, member->at, (uint8_t *)name, member->bytes, reason)) return false;
    name[member->bytes] = '\0';
    name[strcspn(name, "\r\n")] = '\0';
    sample->group = dataset_group(name);
    return true;
}

static bool add_member(struct samples *samples, const struct tar_member *member, struct reason *reason)
{
    struct sample *now = &samples->now;
    size_t length = key_length(member->name);
    const char *extension = member->name + length + 1;
    const char *of_label = samples->kind == TARGET_MASK ? "mask.png" : "cls";
    bool named = length && image_is_named(extension - 1), image = named && !strchr(extension, '.');
    bool label = length && strcasecmp(extension, of_label) == 0;
    bool group = length && strcasecmp(extension, "group") == 0;
    /* KEY.input.jpg, 0.05.png: perhaps beside KEY.jpg, or else the image, wrongly named. */
    bool other = named && !image && !label;
    if (!image && !label && !group && !other) return true;
    if (!now->key || strncmp(now->key, member->name, length) != 0 || now->key[length]) {
        end_sample(samples);
        now->key = text_format("%.*s", (int)length, member->name);
    }
    if (other && !now->other) now->other = text_copy(member->name);
    if (other) return true;
    return image   ? add_image(now, samples->shard, member, reason)
           : label ? add_label(samples, member, reason)
                   : add_group(samples, member, reason);
}

static int by_key(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->order > y->order) - (x->order < y->order);
}

static int by_place(const void *a, const void *b)
{
    const struct packed_entry *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Joins the image, the label and the group of a key that are not adjacent; other members of the key are
 * kept. */
static void join(struct samples *samples, struct sample *parts, size_t count)
{
    struct sample whole = {.key = NULL};
    for (size_t i = 0; i < count; i++) {
        whole.images += parts[i].images;
        whole.labels += parts[i].labels;
        whole.groups += parts[i].groups;
    }
    if (whole.images != 1 || whole.labels != 1 || whole.groups > 1) return;
    uint32_t label = 0;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].images) whole.entry = parts[i].entry;
        if (parts[i].labels) label = parts[i].entry.label;
        if (parts[i].groups) whole.group = parts[i].group;
        parts[i].images = parts[i].labels = parts[i].groups = 0;
        free(parts[i].other);
        parts[i].other = NULL;
    }
    whole.entry.label = label;
    add_entry(samples, &whole);
    samples->joined++;
}

static void join_loose(struct samples *samples)
{
    struct shard *shard = samples->shard;
    qsort(samples->loose, samples->loose_count, sizeof *samples->loose, by_key);
    for (size_t i = 0, end; i < samples->loose_count; i = end) {
        for (end = i + 1; end < samples->loose_count; end++)
            if (strcmp(samples->loose[end].key, samples->loose[i].key) != 0) break;
        join(samples, samples->loose + i, end - i);
    }
    if (samples->joined) qsort(shard->entries, (size_t)shard->images, sizeof *shard->entries, by_place);
}

/* Reports how many samples are left out, with an example; an image without a mask is refused. */
static bool check_complete(const struct samples *samples, struct reason *reason)
{
    bool masks = samples->kind == TARGET_MASK;
    long images = 0, labels = 0;
    const char *image = NULL, *label = NULL;
    for (size_t i = 0; i < samples->loose_count; i++) {
        const struct sample *part = &samples->loose[i];
        images += part->images;
        labels += part->labels;
        if (part->images) image = part->key;
        if (part->labels) label = part->key;
    }
    if (images && masks)
        return because(reason, "%s: images without exactly one mask (KEY.mask.png): %ld, such as %.100s",
                       samples->shard->path, images, image);
    if (images)
        log_warning("%s: images without exactly one label (KEY.cls) are skipped: %ld, such as %.100s",
                    samples->shard->path, images, image);
    if (labels)
        log_warning("%s: %ld %s do not have exactly one image (KEY.jpg, KEY.png, KEY.webp or KEY.tif), "
                    "such as "
                    "%.100s", samples->shard->path, labels, masks ? "masks" : "labels", label);
    return true;
}

static void tell_misnamed(const struct samples *samples)
{
    const struct sample *example = NULL;
    long count = 0;
    for (size_t i = 0; i < samples->loose_count; i++) {
        const struct sample *part = &samples->loose[i];
        if (!part->other || part->images) continue;
        if (count++ == 0) example = part;
    }
    if (example)
        log_warning("%s: members that are not called KEY.jpg, KEY.png, KEY.webp or KEY.tif are skipped: "
                    "%ld, such as "
                    "%.100s, whose extension is taken to be '%.100s': KEY ends at the first dot",
                    samples->shard->path, count, example->other, example->other + strlen(example->key) + 1);
}

/* A group without its image would be on both sides of a holdout, unnoticed. */
static bool check_groups(const struct samples *samples, struct reason *reason)
{
    for (size_t i = 0; i < samples->loose_count; i++) {
        const struct sample *part = &samples->loose[i];
        if (part->groups && !part->images && !part->labels)
            return because(reason, "%s: %.100s.group is apart from its image and label, or has none",
                           samples->shard->path, part->key);
    }
    return true;
}

static bool read_members(struct samples *samples, struct reason *reason)
{
    struct tar tar = {.file = samples->shard->file, .count = samples->shard->count};
    struct tar_member member;
    struct reason why;
    for (bool more = true;;) {
        if (!tar_next(&tar, &member, &more, &why))
            return because_of(reason, samples->shard->path, why.text);
        if (!more) return true;
        if (!add_member(samples, &member, reason)) return false;
    }
}

/* The masks of the entries, in their order. */
static void take_masks(struct samples *samples)
{
    struct shard *shard = samples->shard;
    shard->masks = memory_new((size_t)shard->images + 1, sizeof *shard->masks);
    for (int64_t i = 0; i < shard->images; i++) {
        shard->masks[i] = samples->masks[shard->entries[i].label];
        shard->entries[i].label = 0;
    }
}

/* The targets of the entries, in their order. */
static void take_labellings(struct samples *samples, struct dataset *dataset)
{
    struct shard *shard = samples->shard;
    size_t images = (size_t)shard->images;
    uint64_t count = 0;
    shard->targets = memory_new(images + 1, sizeof *shard->targets);
    shard->labels = memory_new(samples->label_count + 1, sizeof *shard->labels);
    shard->label_begins = memory_new(images + 1, sizeof *shard->label_begins);
    for (size_t i = 0; i < images; i++) {
        const struct labelling *from = &samples->labellings[shard->entries[i].label];
        shard->targets[i] = from->target;
        shard->label_begins[i] = (int64_t)count;
        shard->entries[i].label = 0;
        for (uint32_t k = 0; samples->kind == TARGET_LABELS && k < from->target.labels; k++) {
            uint32_t label = shard->labels[count++] = samples->labels[from->begin + k];
            if ((int)label >= dataset->classes) dataset->classes = (int)label + 1;
        }
    }
    shard->label_begins[images] = (int64_t)count;
    if (dataset->classes == 0) dataset->classes = 1;
}

static int by_image(const void *a, const void *b)
{
    const struct grouped *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Entries are in the order of their places, too. */
static void take_groups(struct samples *samples)
{
    struct shard *shard = samples->shard;
    size_t images = (size_t)shard->images, next = 0;
    if (samples->grouped_count == 0) return;
    if (!shard->targets) {
        shard->targets = memory_new(images + 1, sizeof *shard->targets);
        shard->labels = memory_new(1, sizeof *shard->labels);
        shard->label_begins = memory_new(images + 1, sizeof *shard->label_begins);
    }
    qsort(samples->grouped, samples->grouped_count, sizeof *samples->grouped, by_image);
    for (size_t i = 0; i < images && next < samples->grouped_count; i++)
        if (shard->entries[i].at == samples->grouped[next].at)
            shard->targets[i].group = samples->grouped[next++].group;
}

bool webdataset_index(struct shard *shard, enum target_kind kind, struct dataset *dataset,
                      struct reason *reason)
{
    struct samples samples = {.shard = shard, .kind = kind};
    dataset->target = kind;
    bool good = read_members(&samples, reason);
    end_sample(&samples);
    if (good && samples.loose_count) {
        join_loose(&samples);
        tell_misnamed(&samples);
        good = check_complete(&samples, reason) && check_groups(&samples, reason);
    }
    for (size_t i = 0; i < samples.loose_count; i++) {
        free(samples.loose[i].key);
        free(samples.loose[i].other);
    }
    free(samples.loose);
    if (good && kind == TARGET_MASK) take_masks(&samples);
    if (good && target_is_row(kind)) take_labellings(&samples, dataset);
    if (good) take_groups(&samples);
    free(samples.grouped);
    free(samples.labellings);
    free(samples.masks);
    free(samples.labels);
    for (int64_t i = 0; i < shard->images; i++)
        if ((int)shard->entries[i].label >= dataset->classes)
            dataset->classes = (int)shard->entries[i].label + 1;
    return good;
}
