/* MNIST and data sets in its format: IDX, a big-endian header followed by bytes
 * (http://yann.lecun.com/exdb/mnist). */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset/dataset.h"
#include "data/formats/gzip_file.h"

#define CLASSES 10
#define MAGIC_LABELS 0x00000801u   /* unsigned bytes, one dimension */
#define MAGIC_IMAGES 0x00000803u   /* unsigned bytes, three */
#define SIDE_MAX 8192

struct idx {
    uint32_t dim[3];
    uint8_t *bytes;
};

struct mnist {
    struct idx images, labels;
};

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static bool read_header(struct gzip_file *file, uint32_t magic, struct idx *idx, struct reason *reason)
{
    int rank = (int)(magic & 0xff);
    uint8_t header[16];
    if (!gzip_file_read(file, header, 4 + 4 * (size_t)rank, reason)) return false;
    if (big_endian(header) != magic)
        return because(reason, "%s: not the expected IDX file: it begins with %08x, not with %08x",
                       file->path, big_endian(header), magic);
    for (int i = 0; i < 3; i++) idx->dim[i] = i < rank ? big_endian(header + 4 + 4 * i) : 1;
    if (idx->dim[0] == 0) return because(reason, "%s: is empty", file->path);
    if (idx->dim[1] == 0 || idx->dim[2] == 0 || idx->dim[1] > SIDE_MAX || idx->dim[2] > SIDE_MAX)
        return because(reason, "%s: images of %u x %u pixels", file->path, idx->dim[2], idx->dim[1]);
    return true;
}

static bool read_idx(const char *dir, const char *name, uint32_t magic, struct idx *idx,
                     struct reason *reason)
{
    struct gzip_file file;
    if (!gzip_file_open(dir, name, &file, reason)) return false;
    bool good = read_header(&file, magic, idx, reason);
    uint64_t bytes = good ? (uint64_t)idx->dim[0] * idx->dim[1] * idx->dim[2] : 0;
    good = good && gzip_file_rest(&file, 4 + 4 * (size_t)(magic & 0xff), bytes, &idx->bytes, reason);
    gzip_file_close(&file);
    return good;
}

/* Where a file is also there in its compressed form, that is not used; if it has other labels, the user may
 * have meant them. */
static void compare_labels(const char *dir, const char *name, const struct idx *labels)
{
    char *zipped = text_format("%s.gz", name);
    struct idx other = {0};
    struct reason unsaid;
    bool read = read_idx(dir, zipped, MAGIC_LABELS, &other, &unsaid);
    if (read && (other.dim[0] != labels->dim[0] || memcmp(other.bytes, labels->bytes, labels->dim[0]) != 0))
        log_warning("%s: %s and %s differ; the labels are those of %s", dir, name, zipped, name);
    free(other.bytes);
    free(zipped);
}

/* The names end in "-idx3-ubyte" on LeCun's page and in ".idx3-ubyte" in many copies. */
static bool read_either(const char *dir, const char *stem, const char *tail, uint32_t magic, struct idx *idx,
                        struct reason *reason)
{
    char *official = text_format("%s-%s", stem, tail), *dotted = text_format("%s.%s", stem, tail);
    struct gzip_file file;
    struct reason ignored;
    bool there = gzip_file_open(dir, dotted, &file, &ignored);
    gzip_file_close(&file);
    bool good = read_idx(dir, there ? dotted : official, magic, idx, reason);
    if (good && magic == MAGIC_LABELS) compare_labels(dir, there ? dotted : official, idx);
    free(official);
    free(dotted);
    return good;
}

static bool mnist_check(const char *dir, const struct mnist *mnist, struct reason *reason)
{
    if (mnist->images.dim[0] != mnist->labels.dim[0])
        return because(reason, "%s: %u images but %u labels", dir, mnist->images.dim[0],
                       mnist->labels.dim[0]);
    for (uint32_t i = 0; i < mnist->labels.dim[0]; i++)
        if (mnist->labels.bytes[i] >= CLASSES)
            return because(reason, "%s: label %d of image %u is not between 0 and %d", dir,
                           mnist->labels.bytes[i], i, CLASSES - 1);
    return true;
}

static enum status mnist_open(const struct dataset_options *options, struct dataset *dataset)
{
    struct mnist *mnist = dataset->state = memory_new(1, sizeof *mnist);
    bool train = options->split == SPLIT_TRAIN;
    struct reason reason;
    if (!options->path) return fail(BAD_DATA, "mnist: no folder is given; set data.train");
    if (!read_either(options->path, train ? "train-images" : "t10k-images", "idx3-ubyte", MAGIC_IMAGES,
                     &mnist->images, &reason) ||
        !read_either(options->path, train ? "train-labels" : "t10k-labels", "idx1-ubyte", MAGIC_LABELS,
                     &mnist->labels, &reason) ||
        !mnist_check(options->path, mnist, &reason))
        return fail(BAD_DATA, "%s", reason.text);
    dataset->count = mnist->images.dim[0];
    dataset->h = (int)mnist->images.dim[1];
    dataset->w = (int)mnist->images.dim[2];
    dataset->c = 1;
    dataset->classes = CLASSES;
    dataset->numbered = true;
    dataset->class_names = gzip_file_class_names(NULL, NULL, CLASSES);
    return OK;
}

static int mnist_label(const struct dataset *dataset, int64_t index)
{
    const struct mnist *mnist = dataset->state;
    return dataset_number(dataset, mnist->labels.bytes[index]);
}

static bool mnist_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                       struct image *image, int *label, struct reason *reason)
{
    const struct mnist *mnist = dataset->state;
    if (!image_resize_buffer(image, dataset->h, dataset->w, 1, reason)) return false;
    size_t bytes = (size_t)dataset->h * (size_t)dataset->w;
    memcpy(image->pixels, mnist->images.bytes + (size_t)index * bytes, bytes);
    *label = mnist_label(dataset, index);
    return true;
}

static void mnist_contents(const struct dataset *dataset, int64_t index, struct image_contents *contents)
{
    const struct mnist *mnist = dataset->state;
    const uint8_t *pixels = mnist->images.bytes + index * contents->bytes;
    contents->crc = crc32c(0, pixels, (size_t)contents->bytes);
    contents->known = true;
}

static void mnist_close(struct dataset *dataset)
{
    struct mnist *mnist = dataset->state;
    if (!mnist) return;
    free(mnist->images.bytes);
    free(mnist->labels.bytes);
    free(mnist);
}

const struct format format_mnist = {
    .name = "mnist",
    .one_size = true,
    .help = "a folder of MNIST or Fashion-MNIST IDX files, as published (.gz) or uncompressed",
    .open = mnist_open,
    .read = mnist_read,
    .label = mnist_label,
    .contents = mnist_contents,
    .close = mnist_close,
};
