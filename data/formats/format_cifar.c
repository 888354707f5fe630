/* CIFAR-10 and CIFAR-100, binary version: records of labels, then red, green and blue planes of
 * 32 x 32 bytes (https://www.cs.toronto.edu/~kriz/cifar.html). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "data/dataset/dataset.h"
#include "data/formats/gzip_file.h"

#define SIDE 32
#define PLANE (SIDE * SIDE)
#define FILES_MAX 5

struct layout {
    const char *train[FILES_MAX + 1], *val[FILES_MAX + 1];
    const char *names;         /* one class name a line */
    int classes;
    int label_bytes, label;    /* label bytes in a record; which of them is used */
};

static const struct layout cifar10 = {
    .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
              "data_batch_5.bin"},
    .val = {"test_batch.bin"},
    .names = "batches.meta.txt",
    .classes = 10,
    .label_bytes = 1,
};

static const struct layout cifar100 = {
    .train = {"train.bin"},
    .val = {"test.bin"},
    .names = "fine_label_names.txt",
    .classes = 100,
    .label_bytes = 2,
    .label = 1,
};

/* Records of all files, one block per file. */
struct cifar {
    const struct layout *layout;
    uint8_t *bytes[FILES_MAX];
    int64_t count[FILES_MAX];
};

static int record_bytes(const struct layout *layout) { return layout->label_bytes + 3 * PLANE; }

static bool check_labels(const struct cifar *cifar, int file, const char *path, struct reason *reason)
{
    const struct layout *layout = cifar->layout;
    for (int64_t i = 0; i < cifar->count[file]; i++) {
        int label = cifar->bytes[file][i * record_bytes(layout) + layout->label];
        if (label >= layout->classes)
            return because(reason, "%s: label %d of image %lld is not between 0 and %d", path, label,
                           (long long)i, layout->classes - 1);
    }
    return true;
}

static bool read_records(struct cifar *cifar, int file, const char *path, struct reason *reason)
{
    struct stat stat_of;
    struct gzip_file opened;
    int record = record_bytes(cifar->layout);
    if (stat(path, &stat_of) != 0) return because_of(reason, path, strerror(errno));
    if (!gzip_file_open(NULL, path, &opened, reason)) return false;
    uint64_t bytes = (uint64_t)stat_of.st_size;
    bool good = bytes > 0 && bytes % (uint64_t)record == 0;
    if (!good)
        because(reason, "%s: truncated: %llu bytes are not a whole number of records of %d", path,
                (unsigned long long)bytes, record);
    good = good && gzip_file_rest(&opened, 0, bytes, &cifar->bytes[file], reason);
    cifar->count[file] = good ? (int64_t)(bytes / (uint64_t)record) : 0;
    gzip_file_close(&opened);
    return good && check_labels(cifar, file, path, reason);
}

static enum status cifar_open(const struct layout *layout, const struct dataset_options *options,
                              struct dataset *dataset)
{
    struct cifar *cifar = dataset->state = memory_new(1, sizeof *cifar);
    cifar->layout = layout;
    if (!options->path)
        return fail(BAD_DATA, "%s: no folder is given; set data.train", dataset->format->name);
    const char *const *files = options->split == SPLIT_TRAIN ? layout->train : layout->val;
    for (int i = 0; files[i]; i++) {
        struct reason reason;
        char *path = text_format("%s/%s", options->path, files[i]);
        bool good = read_records(cifar, i, path, &reason);
        free(path);
        if (!good) return fail(BAD_DATA, "%s", reason.text);
        dataset->count += cifar->count[i];
    }
    dataset->h = dataset->w = SIDE;
    dataset->c = 3;
    dataset->classes = layout->classes;
    dataset->class_names = gzip_file_class_names(options->path, layout->names, layout->classes);
    dataset->numbered = strcmp(dataset->class_names[0], "0") == 0;
    return OK;
}

static enum status cifar10_open(const struct dataset_options *options, struct dataset *dataset)
{
    return cifar_open(&cifar10, options, dataset);
}

static enum status cifar100_open(const struct dataset_options *options, struct dataset *dataset)
{
    return cifar_open(&cifar100, options, dataset);
}

static const uint8_t *record_of(const struct cifar *cifar, int64_t index)
{
    int file = 0;
    for (; index >= cifar->count[file]; file++) index -= cifar->count[file];
    return cifar->bytes[file] + index * record_bytes(cifar->layout);
}

static int cifar_label(const struct dataset *dataset, int64_t index)
{
    const struct cifar *cifar = dataset->state;
    return dataset_number(dataset, record_of(cifar, index)[cifar->layout->label]);
}

static bool cifar_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                       struct image *image, int *label, struct reason *reason)
{
    const struct cifar *cifar = dataset->state;
    if (!image_resize_buffer(image, SIDE, SIDE, 3, reason)) return false;
    const uint8_t *record = record_of(cifar, index);
    const uint8_t *red = record + cifar->layout->label_bytes, *green = red + PLANE, *blue = green + PLANE;
    *label = dataset_number(dataset, record[cifar->layout->label]);
    uint8_t *restrict to = image->pixels;
    for (int i = 0; i < PLANE; i++) {
        to[3 * i] = red[i];
        to[3 * i + 1] = green[i];
        to[3 * i + 2] = blue[i];
    }
    return true;
}

static void cifar_contents(const struct dataset *dataset, int64_t index, struct image_contents *contents)
{
    const struct cifar *cifar = dataset->state;
    contents->crc = crc32c(0, record_of(cifar, index) + cifar->layout->label_bytes, 3 * PLANE);
    contents->known = true;
}

static void cifar_close(struct dataset *dataset)
{
    struct cifar *cifar = dataset->state;
    if (!cifar) return;
    for (int i = 0; i < FILES_MAX; i++) free(cifar->bytes[i]);
    free(cifar);
}

const struct format format_cifar10 = {
    .name = "cifar10",
    .one_size = true,
    .help = "a folder with data_batch_1.bin to _5.bin and test_batch.bin (CIFAR-10, binary version)",
    .open = cifar10_open,
    .read = cifar_read,
    .label = cifar_label,
    .contents = cifar_contents,
    .close = cifar_close,
};

const struct format format_cifar100 = {
    .name = "cifar100",
    .one_size = true,
    .help = "a folder with train.bin and test.bin (CIFAR-100, binary version; fine labels)",
    .open = cifar100_open,
    .read = cifar_read,
    .label = cifar_label,
    .contents = cifar_contents,
    .close = cifar_close,
};
