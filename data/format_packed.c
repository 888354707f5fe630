/* Packed data sets, as amptrain-pack(5) has them, and tar archives as WebDataset writes them. The files are
 * read, not mapped: one that becomes shorter, or whose disk fails, costs its images and not the process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/packed.h"
#include "data/tar.h"

/* One file: a shard if there are several. */
struct shard {
    char *path;
    int file;                  /* -1: not opened yet */
    size_t count;              /* bytes in it */
    int64_t first;             /* index of its first image in the data set */
    int64_t images;
    struct packed_entry *entries;
    bool checked;                         /* entries have checksums */
};

struct packed {
    struct shard *shards;
    int count;
};

/* Shards may be more than the files that a process may have open unless it asks for more. */
static bool may_open_more(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static bool open_file(struct shard *shard, struct reason *reason)
{
    struct stat stat;
    do
        shard->file = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (shard->file < 0 && errno == EMFILE && may_open_more());
    if (shard->file < 0 || fstat(shard->file, &stat) != 0)
        return because(reason, "%s: %s", shard->path, strerror(errno));
    if (!S_ISREG(stat.st_mode) || stat.st_size == 0)
        return because(reason, "%s: empty, or not a regular file", shard->path);
    shard->count = (size_t)stat.st_size;
    return true;
}

static bool read_at(const struct shard *shard, uint64_t at, void *to, size_t count, struct reason *reason)
{
    ssize_t got = file_read(shard->file, to, count, (int64_t)at);
    if (got < 0) return because(reason, "%s: %s", shard->path, strerror(errno));
    return (size_t)got == count ||
           because(reason, "%s: truncated: it became shorter while it was read", shard->path);
}

/* A part of the file, in new memory. */
static void *read_part(const struct shard *shard, uint64_t at, size_t count, struct reason *reason)
{
    void *part = memory_try(count, 1);
    if (!part) because(reason, "%s: no memory for %zu bytes of it", shard->path, count);
    if (!part || read_at(shard, at, part, count, reason)) return part;
    free(part);
    return NULL;
}

/* Packed files */

/* Whether `count` things of `size` bytes from `at` on lie in the file. */
static bool lies_within(const struct shard *shard, uint64_t at, uint64_t count, uint64_t size)
{
    return at <= shard->count && count <= (shard->count - at) / size;
}

static bool check_header(const struct shard *shard, const struct packed_header *header, struct reason *reason)
{
    if (crc32c(0, header, offsetof(struct packed_header, crc)) != header->crc)
        return because(reason, "%s: the header is garbled", shard->path);
    if (header->header_bytes != sizeof *header || header->entry_bytes != sizeof(struct packed_entry))
        return because(reason, "%s: the header makes no sense", shard->path);
    if (header->file_bytes != shard->count)
        return because(reason, "%s: truncated: %zu of %llu bytes are there", shard->path, shard->count,
                       (unsigned long long)header->file_bytes);
    if (!lies_within(shard, header->index_at, header->count, header->entry_bytes) ||
        !lies_within(shard, header->names_at, header->names_bytes, 1) || header->index_at % 8 != 0)
        return because(reason, "%s: the index lies outside of the file", shard->path);
    if (header->channels < 1 || header->channels > IMAGE_CHANNELS_MAX || header->classes < 1 ||
        header->classes > header->names_bytes || header->classes > CLASSES_MAX ||
        (header->h > 0) != (header->w > 0))
        return because(reason, "%s: the header makes no sense", shard->path);
    return true;
}

static bool read_entries(struct shard *shard, const struct packed_header *header, struct reason *reason)
{
    size_t bytes = header->count * sizeof *shard->entries;
    shard->entries = read_part(shard, header->index_at, bytes, reason);
    if (!shard->entries) return false;
    shard->images = (int64_t)header->count;
    if (crc32c(0, shard->entries, bytes) != header->index_crc)
        return because(reason, "%s: the index is garbled", shard->path);
    for (uint64_t i = 0; i < header->count; i++) {
        const struct packed_entry *entry = &shard->entries[i];
        bool raw = entry->kind == PACKED_RAW;
        bool good = lies_within(shard, entry->at, entry->bytes, 1) && entry->label < header->classes &&
                    (raw || (entry->kind == PACKED_FILE && entry->bytes <= IMAGE_FILE_BYTES_MAX));
        good = good && (!raw || (uint64_t)entry->h * entry->w == entry->bytes / header->channels);
        good = good && (!raw || (entry->h > 0 && entry->w > 0 && entry->bytes % header->channels == 0));
        if (!good || (header->h && (!raw || entry->h != header->h || entry->w != header->w)))
            return because(reason, "%s: the entry of image %llu makes no sense", shard->path,
                           (unsigned long long)i);
    }
    return true;
}

static bool take_names(const char *path, const struct packed_header *header, const char *name,
                       struct dataset *dataset, struct reason *reason)
{
    const char *end = name + header->names_bytes;
    if (crc32c(0, name, header->names_bytes) != header->names_crc || end[-1] != '\0')
        return because(reason, "%s: the class names are garbled", path);
    bool first = dataset->class_names == NULL;
    if (!first && dataset->classes != (int)header->classes)
        return because(reason, "%s: %u classes where others have %d", path, header->classes,
                       dataset->classes);
    if (first) {
        dataset->class_names = memory_new(header->classes, sizeof *dataset->class_names);
        dataset->classes = (int)header->classes;
    }
    for (uint32_t i = 0; i < header->classes; i++, name += strlen(name) + 1) {
        if (name >= end) return because(reason, "%s: too few class names", path);
        if (first)
            dataset->class_names[i] = text_copy(name);
        else if (strcmp(dataset->class_names[i], name) != 0)
            return because(reason, "%s: class %u is '%s', and '%s' in others", path, i, name,
                           dataset->class_names[i]);
    }
    return true;
}

static bool read_names(const struct shard *shard, const struct packed_header *header, struct dataset *dataset,
                       struct reason *reason)
{
    char *names = read_part(shard, header->names_at, header->names_bytes, reason);
    bool good = names && take_names(shard->path, header, names, dataset, reason);
    free(names);
    return good;
}

static bool open_packed(struct shard *shard, bool first, struct dataset *dataset, struct reason *reason)
{
    struct packed_header header;
    if (shard->count < sizeof header) return because(reason, "%s: truncated", shard->path);
    if (!read_at(shard, 0, &header, sizeof header, reason)) return false;
    if (!check_header(shard, &header, reason)) return false;
    shard->checked = true;
    if (!read_entries(shard, &header, reason) || !read_names(shard, &header, dataset, reason)) return false;
    if (!first && dataset->c != (int)header.channels)
        return because(reason, "%s: %u channels where others have %d", shard->path, header.channels,
                       dataset->c);
    bool alike = first || (dataset->h == (int)header.h && dataset->w == (int)header.w);
    dataset->c = (int)header.channels;
    dataset->h = alike ? (int)header.h : 0;
    dataset->w = alike ? (int)header.w : 0;
    return true;
}

/* Tar archives: an image KEY.EXTENSION and its label in KEY.cls, next to each other in either order. */

/* What is known of the sample at hand. */
struct sample {
    char key[TAR_NAME];
    struct packed_entry entry;
    bool image, label;
};

static size_t key_length(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    const char *dot = strchr(base, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

/* What is looked at of a member: enough to know an image, or a label of seven digits and what ends it. */
#define LOOK_BYTES IMAGE_SNIFF_BYTES

static bool read_label(const struct shard *shard, const struct tar_member *member, const uint8_t *text,
                       uint32_t *label, struct reason *reason)
{
    uint64_t value = 0;
    size_t digits = 0;
    while (digits < member->bytes && digits < 7 && text[digits] >= '0' && text[digits] <= '9')
        value = value * 10 + text[digits++] - '0';
    bool ended = digits == member->bytes || strchr("\r\n ", text[digits]);
    if (digits == 0 || !ended || value >= CLASSES_MAX)
        return because(reason, "%s: %.100s is not a class's number, from 0 to %d", shard->path, member->name,
                       CLASSES_MAX - 1);
    *label = (uint32_t)value;
    return true;
}

static void end_sample(struct shard *shard, struct sample *sample, int64_t *incomplete)
{
    if (sample->image && sample->label)
        *array_push(shard->entries, shard->images) = sample->entry;
    else if (sample->image)
        ++*incomplete;
    *sample = (struct sample){.key = ""};
}

static bool add_member(struct shard *shard, const struct tar_member *member, struct sample *sample,
                       int64_t *incomplete, struct reason *reason)
{
    size_t length = key_length(member->name);
    if (strncmp(sample->key, member->name, length) != 0 || sample->key[length]) {
        end_sample(shard, sample, incomplete);
        memcpy(sample->key, member->name, length);
    }
    uint8_t look[LOOK_BYTES];
    size_t count = member->bytes < sizeof look ? member->bytes : sizeof look;
    if (!read_at(shard, member->at, look, count, reason)) return false;
    if (strcmp(member->name + length, ".cls") == 0) {
        sample->label = true;
        return read_label(shard, member, look, &sample->entry.label, reason);
    }
    if (image_sniff(look, count) == IMAGE_UNKNOWN) return true;
    if (member->bytes > IMAGE_FILE_BYTES_MAX)
        return because(reason, "%s: %.100s is too large", shard->path, member->name);
    sample->image = true;
    sample->entry.kind = PACKED_FILE;
    sample->entry.at = member->at;
    sample->entry.bytes = (uint32_t)member->bytes;
    return true;
}

static bool open_tar(struct shard *shard, struct dataset *dataset, struct reason *reason)
{
    struct tar tar = {.file = shard->file, .count = shard->count};
    struct tar_member member;
    struct sample sample = {.key = ""};
    struct reason why;
    int64_t incomplete = 0;
    bool more = true;
    while (more) {
        if (!tar_next(&tar, &member, &more, &why)) return because(reason, "%s: %s", shard->path, why.text);
        if (more && !add_member(shard, &member, &sample, &incomplete, reason)) return false;
    }
    end_sample(shard, &sample, &incomplete);
    if (incomplete)
        log_warning("%s: %lld images have no label (KEY.cls) and are left out", shard->path,
                    (long long)incomplete);
    for (int64_t i = 0; i < shard->images; i++)
        if ((int)shard->entries[i].label >= dataset->classes)
            dataset->classes = (int)shard->entries[i].label + 1;
    return true;
}

/* A tar archive names no classes: they are numbers, as many as there are known to be. */
static enum status number_classes(const struct dataset_options *options, struct dataset *dataset)
{
    int known = options->class_names ? options->class_count : options->classes;
    if (known > 0 && dataset->classes > known)
        return fail(BAD_DATA, "%s: label %d where there are %d classes", options->path, dataset->classes - 1,
                    known);
    if (known > 0) dataset->classes = known;
    dataset->class_names = memory_new((size_t)dataset->classes, sizeof *dataset->class_names);
    for (int i = 0; i < dataset->classes; i++)
        dataset->class_names[i] =
            options->class_names ? text_copy(options->class_names[i]) : text_format("%d", i);
    return OK;
}

/* Both */

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct shard *)a)->path, ((const struct shard *)b)->path);
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
    while (errno = 0, (entry = readdir(folder)))
        if (ends_with(entry->d_name, ".pack") || ends_with(entry->d_name, ".tar"))
            *array_push(packed->shards, packed->count) =
                (struct shard){.path = text_format("%s/%s", path, entry->d_name), .file = -1};
    int why = errno;
    closedir(folder);
    if (why) return fail(BAD_DATA, "%s: %s", path, strerror(why));
    if (packed->count == 0) return fail(BAD_DATA, "%s: holds no files that end in .pack or .tar", path);
    qsort(packed->shards, (size_t)packed->count, sizeof *packed->shards, compare_paths);
    return OK;
}

static bool open_shard(struct packed *packed, int i, struct dataset *dataset, struct reason *reason)
{
    struct shard *shard = &packed->shards[i];
    uint8_t look[TAR_BLOCK];
    if (!open_file(shard, reason)) return false;
    size_t count = shard->count < sizeof look ? shard->count : sizeof look;
    if (!read_at(shard, 0, look, count, reason)) return false;
    size_t digit = strlen(PACKED_MAGIC) - 1;
    bool mine = count > digit && memcmp(look, PACKED_MAGIC, digit) == 0;
    if (mine && look[digit] != PACKED_MAGIC[digit])
        return because(reason, "%s: is of version %c; this amptrain reads version %c", shard->path,
                       look[digit] >= '0' && look[digit] <= '9' ? look[digit] : '?', PACKED_MAGIC[digit]);
    if (!mine && !tar_sniff(look, count))
        return because(reason, "%s: neither a packed data set nor a tar archive", shard->path);
    bool good = mine ? open_packed(shard, i == 0, dataset, reason) : open_tar(shard, dataset, reason);
    if (!good) return false;
    if (shard->checked != packed->shards[0].checked)
        return because(reason, "%s: packed data sets and tar archives are mixed", shard->path);
    shard->first = dataset->count;
    dataset->count += shard->images;
    return true;
}

static enum status packed_open(const struct dataset_options *options, struct dataset *dataset)
{
    struct packed *packed = dataset->state = memory_new(1, sizeof *packed);
    struct reason reason;
    if (!options->path) return fail(BAD_DATA, "packed: no file is given");
    TRY(find_shards(options->path, packed));
    for (int i = 0; i < packed->count; i++)
        if (!open_shard(packed, i, dataset, &reason)) return fail(BAD_DATA, "%s", reason.text);
    if (dataset->count == 0) return fail(BAD_DATA, "%s: holds no images", options->path);
    dataset->decoded = dataset->h == 0;
    if (packed->shards[0].checked) return OK;
    dataset->c = options->c == 1 ? 1 : 3;
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

/* The reason, with the image's name before it. */
static bool blame(const struct shard *shard, int64_t index, struct reason *reason)
{
    struct reason why;
    because(&why, "image %lld: %s", (long long)index, reason->text);
    return because_of(reason, shard->path, why.text);
}

/* The bytes of image `index` of a shard, which must be those that were packed. */
static bool read_bytes(const struct shard *shard, int64_t index, void *to, struct reason *reason)
{
    const struct packed_entry *entry = &shard->entries[index];
    ssize_t got = file_read(shard->file, to, entry->bytes, (int64_t)entry->at);
    if (got < 0)
        because(reason, "%s", strerror(errno));
    else if ((size_t)got < entry->bytes)
        because(reason, "truncated: the file has become shorter");
    else if (!shard->checked || crc32c(0, to, entry->bytes) == entry->crc)
        return true;
    else
        because(reason, "garbled");
    return blame(shard, index, reason);
}

/* The same, in new memory. */
static uint8_t *read_copy(const struct shard *shard, int64_t index, struct reason *reason)
{
    size_t count = shard->entries[index].bytes;
    uint8_t *bytes = malloc(count ? count : 1);
    if (!bytes) {
        because(reason, "no memory for its %zu bytes", count);
        blame(shard, index, reason);
    }
    if (!bytes || read_bytes(shard, index, bytes, reason)) return bytes;
    free(bytes);
    return NULL;
}

static char *packed_image_path(const struct dataset *dataset, int64_t index)
{
    const struct shard *shard = shard_of(dataset->state, &index);
    return text_format("%s: image %lld", shard->path, (long long)index);
}

static bool decode_file(const struct shard *shard, int64_t index, int channels,
                        const struct image_choice *choice, struct image *image, struct reason *reason)
{
    uint8_t *bytes = read_copy(shard, index, reason);
    if (!bytes) return false;
    bool good = image_decode(bytes, shard->entries[index].bytes, channels, choice, image, reason) ||
                blame(shard, index, reason);
    free(bytes);
    return good;
}

static bool packed_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                        struct image *image, int *label, struct reason *reason)
{
    const struct shard *shard;
    const struct packed_entry *entry = find_entry(dataset, &index, &shard);
    *label = (int)entry->label;
    if (entry->kind == PACKED_FILE) return decode_file(shard, index, dataset->c, choice, image, reason);
    if (!image_resize_buffer(image, (int)entry->h, (int)entry->w, dataset->c, reason))
        return blame(shard, index, reason);
    return read_bytes(shard, index, image->pixels, reason);
}

static bool packed_read_file(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                             int *label, struct reason *reason)
{
    const struct shard *shard;
    const struct packed_entry *entry = find_entry(dataset, &index, &shard);
    if (entry->kind != PACKED_FILE)
        return because(reason, "%s: image %lld is not a file", shard->path, (long long)index);
    uint8_t *copy = read_copy(shard, index, reason);
    if (!copy) return false;
    *bytes = copy;
    *count = entry->bytes;
    *label = (int)entry->label;
    return true;
}

static void packed_close(struct dataset *dataset)
{
    struct packed *packed = dataset->state;
    if (!packed) return;
    for (int i = 0; i < packed->count; i++) {
        if (packed->shards[i].file >= 0) close(packed->shards[i].file);
        free(packed->shards[i].entries);
        free(packed->shards[i].path);
    }
    free(packed->shards);
    free(packed);
}

const struct format format_packed = {
    .name = "packed",
    .help = "a file that amptrain pack wrote, or a tar archive (KEY.jpg, KEY.cls), or a folder of either",
    .open = packed_open,
    .read = packed_read,
    .read_file = packed_read_file,
    .image_path = packed_image_path,
    .close = packed_close,
};
