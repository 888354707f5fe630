#include "input/duplicates.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

/* Limit of images checked when a run starts: a second or two of work. */
#define IMAGES_MAX 50000
#define BYTES_MAX (INT64_C(256) << 20)
#define NAME_ROOM 256

struct entry {
    bool val, wanted;            /* to be read */
    int64_t index, size;         /* in its dataset; bytes, -1: there is no such file */
    uint64_t hash;               /* 0: not read */
};

static int by_content(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    if (x->val != y->val) return x->val - y->val;
    return (x->index > y->index) - (x->index < y->index);
}

static void add_entries(const struct images *images, bool val, struct entry *to)
{
#pragma omp parallel for schedule(dynamic, 64)
    for (int64_t i = 0; i < images->count; i++) {
        int64_t index = images_index(images, i);
        char *path = dataset_image_path(images->dataset, index);
        struct stat status;
        bool found = path && stat(path, &status) == 0;
        to[i] = (struct entry){.val = val, .index = index, .size = found ? status.st_size : -1};
        free(path);
    }
}

static void read_entry(const struct data *data, struct entry *entry)
{
    const struct dataset *dataset = (entry->val ? &data->val : &data->train)->dataset;
    struct reason reason;
    uint8_t *bytes;
    size_t count;
    int label;
    if (!dataset->format->read_file(dataset, entry->index, &bytes, &count, &label, &reason)) return;
    entry->hash = hash_bytes(0, bytes, count) | 1;
    free(bytes);
}

/* Selects images of the same size, if both splits have some. */
static void choose_group(struct entry *group, int64_t count, int64_t *bytes)
{
    if (group[0].size < 0 || group[0].val == group[count - 1].val) return;
    for (int64_t i = 0; i < count && *bytes < BYTES_MAX; i++) {
        group[i].wanted = true;
        *bytes += group[i].size;
    }
}

static void read_wanted(const struct data *data, struct entry *entries, int64_t count)
{
#pragma omp parallel for schedule(dynamic, 16)
    for (int64_t i = 0; i < count; i++)
        if (entries[i].wanted) read_entry(data, &entries[i]);
}

static void warn(const struct data *data, const struct entry *train, const struct entry *val, int64_t count)
{
    char train_name[NAME_ROOM], val_name[NAME_ROOM];
    char *train_path = dataset_image_path(data->train.dataset, train->index);
    char *val_path = dataset_image_path(data->val.dataset, val->index);
    log_warning("%" PRId64 " of %" PRId64 " validation images %s among the training images, too, such as %s "
                "(%s)", count, data->val.count, count == 1 ? "is" : "are",
                text_visible(val_path, val_name, NAME_ROOM),
                text_visible(train_path, train_name, NAME_ROOM));
    free(train_path);
    free(val_path);
}

/* Among entries sorted by content, training images come before identical validation images. */
static void count_twins(const struct data *data, const struct entry *entries, int64_t count)
{
    const struct entry *train = NULL, *first_train = NULL, *first_val = NULL;
    int64_t twins = 0;
    for (int64_t i = 0; i < count; i++) {
        if (entries[i].hash == 0) continue;
        if (!entries[i].val) train = &entries[i];
        bool twin = train && train->size == entries[i].size && train->hash == entries[i].hash;
        if (!entries[i].val || !twin) continue;
        if (twins++ == 0) first_train = train, first_val = &entries[i];
    }
    if (twins > 0) warn(data, first_train, first_val, twins);
}

void duplicates_warn(const struct data *data)
{
    const struct dataset *train = data->train.dataset, *val = data->val.dataset;
    if (!train || !val || !train->format->read_file || !val->format->read_file ||
        data->train.count + data->val.count > IMAGES_MAX)
        return;
    int64_t count = data->train.count + data->val.count, bytes = 0;
    struct entry *entries = memory_new((size_t)count, sizeof *entries);
    add_entries(&data->train, false, entries);
    add_entries(&data->val, true, entries + data->train.count);
    if (count > 0) qsort(entries, (size_t)count, sizeof *entries, by_content);
    for (int64_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && entries[next].size == entries[i].size;) next++;
        choose_group(entries + i, next - i, &bytes);
    }
    read_wanted(data, entries, count);
    if (count > 0) qsort(entries, (size_t)count, sizeof *entries, by_content);
    count_twins(data, entries, count);
    free(entries);
}
