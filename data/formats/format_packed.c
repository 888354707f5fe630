/* Packed data sets (amptrain-pack(5)) and WebDataset tar archives. The files are read, not mapped: if one is
 * truncated, or its disk fails, images are lost but the process survives. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset/dataset.h"
#include "data/dataset/detect.h"
#include "data/formats/packed.h"
#include "data/formats/shard.h"
#include "data/formats/tar.h"

struct packed {
    struct shard *shards;
    int count;
    bool folder;               /* they are its files */
};

static bool open_file(struct shard *shard, struct reason *reason)
{
    struct stat stat;
    do
        shard->file = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (shard->file < 0 && errno == EMFILE && file_raise_limit());
    if (shard->file < 0 || fstat(shard->file, &stat) != 0)
        return because_of(reason, shard->path, strerror(errno));
    if (!S_ISREG(stat.st_mode) || stat.st_size == 0)
        return because_of(reason, shard->path, "empty, or not a regular file");
    shard->count = (size_t)stat.st_size;
    return true;
}

/* A tar archive names no classes: they are numbers, as many as there are known to be. */
static enum status number_classes(const struct dataset_options *options, struct dataset *dataset)
{
    int known = options->class_names ? 0 : options->classes;
    if (known > 0 && dataset->classes > known)
        return fail(BAD_DATA, "%s: label %d where there are %d classes", options->path, dataset->classes - 1,
                    known);
    if (known > 0) dataset->classes = known;
    static char *const value[] = {"value"};
    bool number = dataset->target == TARGET_NUMBER;
    dataset->class_names = text_list(number ? value : NULL, number, dataset->classes);
    dataset->numbered = !number;
    return OK;
}

/* The file, or the shards in the folder, in order of their names. */
static enum status find_shards(const char *path, struct packed *packed)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    if (!folder && errno != ENOTDIR) return fail(BAD_DATA, "%s: %s", path, strerror(errno));
    if (!folder) {
        *array_push(packed->shards, packed->count) = (struct shard){.path = text_copy(path), .file = -1};
        return OK;
    }
    packed->folder = true;
    while (errno = 0, (entry = readdir(folder)))
        if (detect_packed(entry->d_name))
            *array_push(packed->shards, packed->count) =
                (struct shard){.path = text_format("%s/%s", path, entry->d_name), .file = -1};
    int why = errno;
    closedir(folder);
    if (why) return fail(BAD_DATA, "%s: %s", path, strerror(why));
    if (packed->count == 0) return fail(BAD_DATA, "%s: contains no .pack or .tar files", path);
    qsort(packed->shards, (size_t)packed->count, sizeof *packed->shards, text_compare);
    return OK;
}

static bool open_shard(struct packed *packed, int i, enum target_kind kind, struct dataset *dataset,
                       struct reason *reason)
{
    struct shard *shard = &packed->shards[i];
    uint8_t look[TAR_BLOCK];
    if (!open_file(shard, reason)) return false;
    size_t count = shard->count < sizeof look ? shard->count : sizeof look;
    if (!shard_read(shard, 0, look, count, reason)) return false;
    size_t digit = strlen(PACKED_MAGIC) - 1;
    struct file_kind kind_of = file_kind(look, count, shard->count);
    bool mine = kind_of.kind == FILE_PACKED;
    if (mine && (count <= digit || look[digit] < '1' || look[digit] > PACKED_TARGETS))
        return because(reason, "%s: has version %c; this amptrain reads versions 1 to %c", shard->path,
                       count > digit && look[digit] >= '0' && look[digit] <= '9' ? look[digit] : '?',
                       PACKED_TARGETS);
    if (!mine && kind_of.kind != FILE_TAR) {
        const char *but = kind_of.name ? ", but " : "", *what = kind_of.name ? kind_of.name : "";
        char why[128];
        snprintf(why, sizeof why, "neither a packed data set nor a tar archive%s%s", but, what);
        return because_of(reason, shard->path, why);
    }
    bool good = mine ? packed_index(shard, i == 0, dataset, reason)
                     : webdataset_index(shard, kind, dataset, reason);
    if (!good) return false;
    if (shard->checked != packed->shards[0].checked)
        return because_of(reason, shard->path, "packed data sets and tar archives are mixed");
    shard->first = dataset->count;
    dataset->count += shard->images;
    return true;
}

/* A single file is read without other shards. */
static enum status check_set(const char *path, const struct packed *packed)
{
    const struct shard *first = &packed->shards[0];
    if (!first->checked) return OK;
    if (packed->folder) return shard_set_check(path, packed->shards, packed->count);
    if (first->set.count > 1)
        log_warning("%s: is one of %u shards; the others are not read", path, first->set.count);
    return OK;
}

static enum status packed_open(const struct dataset_options *options, struct dataset *dataset)
{
    struct packed *packed = dataset->state = memory_new(1, sizeof *packed);
    struct reason reason;
    if (!options->path) return fail(BAD_DATA, "packed: no file is given; set data.train");
    TRY(find_shards(options->path, packed));
    enum target_kind kind = options->target == TARGET_ANY ? TARGET_CLASS : options->target;
    for (int i = 0; i < packed->count; i++)
        if (!open_shard(packed, i, kind, dataset, &reason)) return fail(BAD_DATA, "%s", reason.text);
    TRY(check_set(options->path, packed));
    if (dataset->count == 0) return fail(BAD_DATA, "%s: contains no images", options->path);
    dataset->decoded = dataset->h == 0;
    if (packed->shards[0].checked && dataset->target == TARGET_MASK) {
        dataset->masks = memory_new(1, sizeof *dataset->masks);
        mask_classes_numbers(dataset->classes, dataset->class_names, dataset->classes, true, dataset->masks);
    }
    if (packed->shards[0].checked) return OK;
    dataset->c = dataset_channels(options);
    return number_classes(options, dataset);
}

/* The shard that image `index` is in; *index becomes the number in it. */
static const struct shard *shard_of(const struct packed *packed, int64_t *index)
{
    int low = 0, high = packed->count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (packed->shards[middle].first <= *index)
            low = middle;
        else
            high = middle - 1;
    }
    *index -= packed->shards[low].first;
    return &packed->shards[low];
}

static const struct packed_entry *find_entry(const struct dataset *dataset, int64_t *index,
                                             const struct shard **shard)
{
    *shard = shard_of(dataset->state, index);
    return &(*shard)->entries[*index];
}

static int packed_label(const struct dataset *dataset, int64_t index)
{
    const struct shard *shard;
    return dataset_number(dataset, (int)find_entry(dataset, &index, &shard)->label);
}

static double packed_get_number(const struct dataset *dataset, int64_t index)
{
    const struct shard *shard = shard_of(dataset->state, &index);
    return packed_number(&shard->targets[index]);
}

static void packed_get_labels(const struct dataset *dataset, int64_t index, float *target)
{
    const struct shard *shard = shard_of(dataset->state, &index);
    memset(target, 0, (size_t)dataset->classes * sizeof *target);
    if (!shard->targets) return;
    for (int64_t i = shard->label_begins[index]; i < shard->label_begins[index + 1]; i++)
        target[dataset_number(dataset, (int)shard->labels[i])] = 1;
}

static uint64_t packed_group(const struct dataset *dataset, int64_t index)
{
    const struct shard *shard = shard_of(dataset->state, &index);
    return shard->targets ? shard->targets[index].group : 0;
}

static struct image_contents contents_of(const struct shard *shard, const struct packed_entry *entry)
{
    return (struct image_contents){.bytes = entry->bytes, .known = shard->checked, .crc = entry->crc};
}

static void packed_contents(const struct dataset *dataset, int64_t index, struct image_contents *contents)
{
    const struct shard *shard;
    const struct packed_entry *entry = find_entry(dataset, &index, &shard);
    *contents = contents_of(shard, entry);
}

static void packed_mask_contents(const struct dataset *dataset, int64_t index,
                                 struct image_contents *contents)
{
    const struct shard *shard = shard_of(dataset->state, &index);
    *contents = contents_of(shard, &shard->masks[index]);
}

/* The reason, prefixed with the image's name. */
static bool packed_blame(const struct shard *shard, int64_t index, struct reason *reason)
{
    struct reason why;
    because(&why, "image %lld: %s", (long long)index, reason->text);
    return because_of(reason, shard->path, why.text);
}

/* The bytes of an entry of image `index` of a shard, which must be those that were packed. */
static bool read_bytes(const struct shard *shard, const struct packed_entry *entry, int64_t index, void *to,
                       struct reason *reason)
{
    ssize_t got = file_read(shard->file, to, entry->bytes, (int64_t)entry->at);
    if (got < 0)
        because(reason, "%s", strerror(errno));
    else if ((size_t)got < entry->bytes)
        because(reason, "truncated while in use");
    else if (!shard->checked || crc32c(0, to, entry->bytes) == entry->crc)
        return true;
    else
        because(reason, "damaged");
    return packed_blame(shard, index, reason);
}

/* Reads into new memory. */
static uint8_t *read_copy(const struct shard *shard, const struct packed_entry *entry, int64_t index,
                          struct reason *reason)
{
    size_t count = entry->bytes;
    uint8_t *bytes = malloc(count ? count : 1);
    if (!bytes) {
        because(reason, "not enough memory for its %zu bytes", count);
        packed_blame(shard, index, reason);
    }
    if (!bytes || read_bytes(shard, entry, index, bytes, reason)) return bytes;
    free(bytes);
    return NULL;
}

static char *packed_image_path(const struct dataset *dataset, int64_t index)
{
    const struct shard *shard = shard_of(dataset->state, &index);
    return text_format("%s: image %lld", shard->path, (long long)index);
}

static bool decode_file(const struct shard *shard, int64_t index, struct image_options options,
                        const struct image_choice *choice, struct image *image, struct reason *reason)
{
    uint8_t *bytes = read_copy(shard, &shard->entries[index], index, reason);
    if (!bytes) return false;
    bool good = image_decode(bytes, shard->entries[index].bytes, options, choice, image, reason) ||
                packed_blame(shard, index, reason);
    free(bytes);
    return good;
}

static bool packed_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                        struct image *image, int *label, struct reason *reason)
{
    const struct shard *shard;
    const struct packed_entry *entry = find_entry(dataset, &index, &shard);
    *label = dataset_number(dataset, (int)entry->label);
    if (entry->kind == PACKED_FILE)
        return decode_file(shard, index, dataset_image_options(dataset), choice, image, reason);
    if (dataset->bands.count > 0) return because(reason, "pixels that are no file have no data.bands");
    if (!image_resize_buffer(image, (int)entry->h, (int)entry->w, dataset->c, reason))
        return packed_blame(shard, index, reason);
    return read_bytes(shard, entry, index, image->pixels, reason);
}

static bool packed_read_file(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                             int *label, struct reason *reason)
{
    const struct shard *shard;
    const struct packed_entry *entry = find_entry(dataset, &index, &shard);
    if (entry->kind != PACKED_FILE)
        return because(reason, "%s: image %lld is not a PNG or JPEG file", shard->path, (long long)index);
    uint8_t *copy = read_copy(shard, entry, index, reason);
    if (!copy) return false;
    *bytes = copy;
    *count = entry->bytes;
    *label = dataset_number(dataset, (int)entry->label);
    return true;
}

static bool packed_mask_file(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                             struct reason *reason)
{
    const struct shard *shard = shard_of(dataset->state, &index);
    uint8_t *copy = read_copy(shard, &shard->masks[index], index, reason);
    if (!copy) return false;
    *bytes = copy;
    *count = shard->masks[index].bytes;
    return true;
}

static void packed_close(struct dataset *dataset)
{
    struct packed *packed = dataset->state;
    if (!packed) return;
    for (int i = 0; i < packed->count; i++) {
        if (packed->shards[i].file >= 0) close(packed->shards[i].file);
        free(packed->shards[i].entries);
        free(packed->shards[i].targets);
        free(packed->shards[i].masks);
        free(packed->shards[i].labels);
        free(packed->shards[i].label_begins);
        free(packed->shards[i].path);
    }
    free(packed->shards);
    free(packed);
}

const struct format format_packed = {
    .name = "packed",
    .help = "a packed file (see amptrain pack), a WebDataset tar archive, or a folder of either",
    .open = packed_open,
    .read = packed_read,
    .label = packed_label,
    .labels = packed_get_labels,
    .number = packed_get_number,
    .group = packed_group,
    .read_file = packed_read_file,
    .contents = packed_contents,
    .masks = &(const struct format_masks){.path = packed_image_path, .read_file = packed_mask_file,
                                          .contents = packed_mask_contents},
    .image_path = packed_image_path,
    .close = packed_close,
};
