/* Packed data sets, as amptrain-pack(5) has them, and tar archives as WebDataset writes them: read
 * from the files as they are mapped into memory. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/packed.h"
#include "data/tar.h"

/* One file: a shard if there are several. */
struct shard {
    char *path;
    const uint8_t *bytes;      /* mapped */
    size_t count;
    int64_t first;             /* index of its first image in the data set */
    int64_t images;
    const struct packed_entry *entries;   /* in the file, or `made` */
    struct packed_entry *made;            /* of a tar archive */
    bool checked;                         /* entries have checksums */
};

struct packed {
    struct shard *shards;
    int count;
};

static bool map_file(struct shard *shard, struct reason *reason)
{
    struct stat stat;
    int file = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return because(reason, "%s: %s", shard->path, strerror(errno));
    bool good = fstat(file, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size > 0;
    void *bytes = good ? mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    close(file);
    if (!good) return because(reason, "%s: empty, or not a regular file", shard->path);
    if (bytes == MAP_FAILED) return because(reason, "%s: %s", shard->path, strerror(errno));
    shard->bytes = bytes;
    shard->count = (size_t)stat.st_size;
    return true;
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
        return because(reason, "%s: of another version", shard->path);
    if (header->file_bytes != shard->count)
        return because(reason, "%s: truncated: %zu of %llu bytes are there", shard->path, shard->count,
                       (unsigned long long)header->file_bytes);
    if (!lies_within(shard, header->index_at, header->count, header->entry_bytes) ||
        !lies_within(shard, header->names_at, header->names_bytes, 1) || header->index_at % 8 != 0)
        return because(reason, "%s: the index lies outside of the file", shard->path);
    if ((header->channels != 1 && header->channels != 3) || header->classes < 1 ||
        header->classes > header->names_bytes || header->classes > CLASSES_MAX ||
        (header->h > 0) != (header->w > 0))
        return because(reason, "%s: the header makes no sense", shard->path);
    return true;
}

static bool check_entries(const struct shard *shard, const struct packed_header *header,
                          struct reason *reason)
{
    size_t bytes = header->count * sizeof *shard->entries;
    if (crc32c(0, shard->entries, bytes) != header->index_crc)
        return because(reason, "%s: the index is garbled", shard->path);
    for (uint64_t i = 0; i < header->count; i++) {
        const struct packed_entry *entry = &shard->entries[i];
        bool raw = entry->kind == PACKED_RAW;
        bool good = lies_within(shard, entry->at, entry->bytes, 1) && entry->label < header->classes &&
                    (raw || entry->kind == PACKED_FILE);
        good = good && (!raw || (uint64_t)entry->h * entry->w == entry->bytes / header->channels);
        good = good && (!raw || (entry->h > 0 && entry->w > 0 && entry->bytes % header->channels == 0));
        if (!good || (header->h && (!raw || entry->h != header->h || entry->w != header->w)))
            return because(reason, "%s: the entry of image %llu makes no sense", shard->path,
                           (unsigned long long)i);
    }
    return true;
}

static bool read_names(const struct shard *shard, const struct packed_header *header, struct dataset *dataset,
                       struct reason *reason)
{
    const char *name = (const char *)shard->bytes + header->names_at, *end = name + header->names_bytes;
    if (crc32c(0, name, header->names_bytes) != header->names_crc || end[-1] != '\0')
        return because(reason, "%s: the class names are garbled", shard->path);
    bool first = dataset->class_names == NULL;
    if (!first && dataset->classes != (int)header->classes)
        return because(reason, "%s: %u classes where others have %d", shard->path, header->classes,
                       dataset->classes);
    if (first) {
        dataset->class_names = memory_new(header->classes, sizeof *dataset->class_names);
        dataset->classes = (int)header->classes;
    }
    for (uint32_t i = 0; i < header->classes; i++, name += strlen(name) + 1) {
        if (name >= end) return because(reason, "%s: too few class names", shard->path);
        if (first)
            dataset->class_names[i] = text_copy(name);
        else if (strcmp(dataset->class_names[i], name) != 0)
            return because(reason, "%s: class %u is '%s', and '%s' in others", shard->path, i, name,
                           dataset->class_names[i]);
    }
    return true;
}

static bool open_packed(struct shard *shard, bool first, struct dataset *dataset, struct reason *reason)
{
    struct packed_header header;
    if (shard->count < sizeof header) return because(reason, "%s: truncated", shard->path);
    memcpy(&header, shard->bytes, sizeof header);
    if (!check_header(shard, &header, reason)) return false;
    shard->entries = (const struct packed_entry *)(shard->bytes + header.index_at);
    shard->images = (int64_t)header.count;
    shard->checked = true;
    if (!check_entries(shard, &header, reason) || !read_names(shard, &header, dataset, reason)) return false;
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

static bool read_label(const struct shard *shard, const struct tar_member *member, uint32_t *label,
                       struct reason *reason)
{
    uint64_t value = 0;
    size_t digits = 0;
    const uint8_t *text = shard->bytes + member->at;
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
        *array_push(shard->made, shard->images) = sample->entry;
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
    if (strcmp(member->name + length, ".cls") == 0) {
        sample->label = true;
        return read_label(shard, member, &sample->entry.label, reason);
    }
    if (image_sniff(shard->bytes + member->at, member->bytes) == IMAGE_UNKNOWN) return true;
    if (member->bytes > UINT32_MAX)
        return because(reason, "%s: %.100s is too large", shard->path, member->name);
    sample->image = true;
    sample->entry.kind = PACKED_FILE;
    sample->entry.at = member->at;
    sample->entry.bytes = (uint32_t)member->bytes;
    return true;
}

static bool open_tar(struct shard *shard, struct dataset *dataset, struct reason *reason)
{
    struct tar tar = {.bytes = shard->bytes, .count = shard->count};
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
    shard->entries = shard->made;
    for (int64_t i = 0; i < shard->images; i++)
        if ((int)shard->made[i].label >= dataset->classes) dataset->classes = (int)shard->made[i].label + 1;
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
    if (!folder) {
        *array_push(packed->shards, packed->count) = (struct shard){.path = text_copy(path)};
        return OK;
    }
    while ((entry = readdir(folder)))
        if (ends_with(entry->d_name, ".pack") || ends_with(entry->d_name, ".tar"))
            *array_push(packed->shards, packed->count) =
                (struct shard){.path = text_format("%s/%s", path, entry->d_name)};
    closedir(folder);
    if (packed->count == 0) return fail(BAD_DATA, "%s: holds no files that end in .pack or .tar", path);
    qsort(packed->shards, (size_t)packed->count, sizeof *packed->shards, compare_paths);
    return OK;
}

static bool open_shard(struct packed *packed, int i, struct dataset *dataset, struct reason *reason)
{
    struct shard *shard = &packed->shards[i];
    if (!map_file(shard, reason)) return false;
    bool mine = shard->count >= 8 && memcmp(shard->bytes, PACKED_MAGIC, 8) == 0;
    if (!mine && !tar_sniff(shard->bytes, shard->count))
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

static const struct packed_entry *find_entry(const struct dataset *dataset, int64_t index,
                                             const struct shard **shard, struct reason *reason)
{
    *shard = shard_of(dataset->state, &index);
    const struct packed_entry *entry = &(*shard)->entries[index];
    if (!(*shard)->checked) return entry;
    if (crc32c(0, (*shard)->bytes + entry->at, entry->bytes) == entry->crc) return entry;
    because(reason, "%s: image %lld is garbled", (*shard)->path, (long long)index);
    return NULL;
}

static char *packed_image_path(const struct dataset *dataset, int64_t index)
{
    const struct shard *shard = shard_of(dataset->state, &index);
    return text_format("%s: image %lld", shard->path, (long long)index);
}

static bool packed_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                        struct image *image, int *label, struct reason *reason)
{
    const struct shard *shard;
    const struct packed_entry *entry = find_entry(dataset, index, &shard, reason);
    struct reason why;
    if (!entry) return false;
    const uint8_t *bytes = shard->bytes + entry->at;
    *label = (int)entry->label;
    bool good;
    if (entry->kind == PACKED_FILE) {
        good = image_decode(bytes, entry->bytes, dataset->c, choice, image, &why);
    } else {
        good = image_resize_buffer(image, (int)entry->h, (int)entry->w, dataset->c, &why);
        if (good) memcpy(image->pixels, bytes, entry->bytes);
    }
    if (good) return true;
    char *name = packed_image_path(dataset, index);
    because_of(reason, name, why.text);
    free(name);
    return false;
}

static bool packed_read_file(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                             int *label, struct reason *reason)
{
    const struct shard *shard;
    const struct packed_entry *entry = find_entry(dataset, index, &shard, reason);
    if (!entry) return false;
    if (entry->kind != PACKED_FILE)
        return because(reason, "%s: image %lld is not a file", shard->path,
                       (long long)(index - shard->first));
    *bytes = memcpy(memory_new(entry->bytes, 1), shard->bytes + entry->at, entry->bytes);
    *count = entry->bytes;
    *label = (int)entry->label;
    return true;
}

static void packed_close(struct dataset *dataset)
{
    struct packed *packed = dataset->state;
    if (!packed) return;
    for (int i = 0; i < packed->count; i++) {
        if (packed->shards[i].bytes) munmap((void *)packed->shards[i].bytes, packed->shards[i].count);
        free(packed->shards[i].made);
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
