#include "data/dataset/detect.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/directory.h"
#include "base/memory.h"
#include "base/text.h"

/* A file that identifies a data set, possibly with .gz, and its subfolder. */
static const struct sign {
    const char *format, *below, *file;
} signs[] = {
    {"mnist", ".", "train-images-idx3-ubyte"},
    {"mnist", ".", "train-images.idx3-ubyte"},
    {"mnist", ".", "t10k-images-idx3-ubyte"},
    {"mnist", "raw", "train-images-idx3-ubyte"},
    {"mnist", "MNIST/raw", "train-images-idx3-ubyte"},
    {"mnist", "FashionMNIST/raw", "train-images-idx3-ubyte"},
    {"mnist", "KMNIST/raw", "train-images-idx3-ubyte"},
    {"cifar10", ".", "data_batch_1.bin"},
    {"cifar10", ".", "test_batch.bin"},
    {"cifar10", "cifar-10-batches-bin", "data_batch_1.bin"},
    {"cifar100", ".", "train.bin"},
    {"cifar100", ".", "test.bin"},
    {"cifar100", "cifar-100-binary", "train.bin"},
};

/* Python's version of CIFAR. */
static const char *const pickles[] = {
    "data_batch_1", "cifar-10-batches-py/data_batch_1", "train", "cifar-100-python/train", NULL,
};

static bool has_named(const char *folder, const char *below, const char *file, const char *ending)
{
    char *path = text_format("%s/%s/%s%s", folder, below, file, ending);
    struct stat status;
    bool has = stat(path, &status) == 0 && S_ISREG(status.st_mode);
    free(path);
    return has;
}

static bool has_file(const char *folder, const char *below, const char *file)
{
    return has_named(folder, below, file, "") || has_named(folder, below, file, ".gz");
}

static const struct sign *find_sign(const char *path, const char *format)
{
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if ((!format || strcmp(signs[i].format, format) == 0) &&
            has_file(path, signs[i].below, signs[i].file))
            return &signs[i];
    return NULL;
}

const char *detect(const char *path, char **folder)
{
    const struct sign *sign = find_sign(path, NULL);
    if (!sign) return NULL;
    bool here = strcmp(sign->below, ".") == 0;
    *folder = here ? text_copy(path) : text_format("%s/%s", path, sign->below);
    return sign->format;
}

static bool detect_table(const char *name)
{
    static const char *const endings[] = {".csv", ".tsv", ".json", ".jsonl", ".ndjson"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (text_ends_in(name, endings[i])) return true;
    return false;
}

bool detect_packed(const char *name)
{
    return text_ends_in(name, ".pack") || text_ends_in(name, ".tar");
}

/* The format of a folder: of its shards, or of images in its subfolders; NULL: it has neither. */
static const char *format_by_entries(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    const char *format = NULL;
    while (folder && (!format || strcmp(format, "packed") != 0) && (entry = readdir(folder))) {
        char *name = text_format("%s/%s", path, entry->d_name);
        if (detect_packed(entry->d_name)) format = "packed";
        else if (entry->d_name[0] != '.' && directory_is(name)) format = "folder";
        free(name);
    }
    if (folder) closedir(folder);
    return format;
}

/* Names of the folders of a split, the likeliest first. */
static const char *const train_names[] = {"train", "training", NULL};
static const char *const val_names[] = {
    "val", "valid", "validation", "eval", "evaluation", "dev", "test", "testing", NULL,
};

#define WORD_ROOM 64

/* The letters and digits of a name, in lower case. */
static void plain_word(const char *name, char word[WORD_ROOM])
{
    size_t length = 0;
    for (; *name && length < WORD_ROOM - 1; name++)
        if (isalnum((unsigned char)*name)) word[length++] = (char)tolower((unsigned char)*name);
    word[length] = '\0';
}

/* The place of a name in the list; -1: none. Splits are called training_set, Test-Set, train_images, too. */
static int place_of(const char *name, const char *const *names)
{
    static const char *const endings[] = {"set", "data", "images", "split"};
    char word[WORD_ROOM];
    plain_word(name, word);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (text_ends_in(word, endings[i])) word[strlen(word) - strlen(endings[i])] = '\0';
    for (int i = 0; names[i]; i++)
        if (strcmp(word, names[i]) == 0) return i;
    return -1;
}

enum detected_split detect_split(const char *name)
{
    if (place_of(name, train_names) >= 0) return DETECTED_TRAIN;
    return place_of(name, val_names) >= 0 ? DETECTED_VAL : DETECTED_NONE;
}

/* Folders of images that are not sorted into classes, and of what others have beside these for each. */
static const char *const image_names[] = {"image", "images", "img", "imgs", "jpegimages", NULL};
static const char *const beside_names[] = {
    "mask", "masks", "label", "labels", "annotation", "annotations", "annot", "gt", "groundtruth",
    "segmentation", "segmentationclass", "bbox", "bboxes", "boxes", NULL,
};

static const char *find_word(char *const *names, int count, const char *const *words)
{
    for (int i = 0; i < count; i++) {
        char word[WORD_ROOM];
        plain_word(names[i], word);
        for (int k = 0; words[k]; k++)
            if (strcmp(word, words[k]) == 0) return names[i];
    }
    return NULL;
}

bool detect_beside(char *const *names, int count, const char **images, const char **beside)
{
    *images = find_word(names, count, image_names);
    *beside = find_word(names, count, beside_names);
    return *images && *beside;
}

static bool is_shown_folder(const char *path, const char *name)
{
    char *folder = text_format("%s/%s", path, name);
    bool is = name[0] != '.' && directory_is(folder);
    free(folder);
    return is;
}

/* The names of the folders in `path`, sorted. */
static char **list_folders(const char *path, size_t *count)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    char **names = NULL;
    *count = 0;
    while (folder && (entry = readdir(folder)))
        if (is_shown_folder(path, entry->d_name)) *array_push(names, *count) = text_copy(entry->d_name);
    if (folder) closedir(folder);
    if (*count > 0) text_list_sort(names, *count);
    return names;
}

static bool has_class_folders(const char *path)
{
    const char *format = format_by_entries(path);
    return format && strcmp(format, "folder") == 0;
}

/* The likeliest folder of the split that `has` what is wanted; NULL: none. A class may be called "train",
 * too, and images of a test may be in no class. */
static const char *best_split(const char *path, char *const *names, size_t count, const char *const *known,
                              bool (*has)(const char *path))
{
    const char *best = NULL;
    for (size_t i = 0; i < count; i++) {
        int place = place_of(names[i], known);
        char *folder = text_format("%s/%s", path, names[i]);
        if (place >= 0 && (!best || place < place_of(best, known)) && has(folder)) best = names[i];
        free(folder);
    }
    return best;
}

bool detect_splits(const char *path, bool (*has)(const char *path), struct detected_splits *splits)
{
    size_t count;
    if (!has) has = has_class_folders;
    struct text others = {0};
    char **names = list_folders(path, &count);
    const char *train = best_split(path, names, count, train_names, has);
    const char *val = best_split(path, names, count, val_names, has);
    for (size_t i = 0; train && i < count; i++)
        if (names[i] != train && names[i] != val)
            text_add(&others, "%s%s", others.length ? ", " : "", names[i]);
    if (train)
        *splits = (struct detected_splits){text_format("%s/%s", path, train),
                                           val ? text_format("%s/%s", path, val) : NULL, others.data};
    text_list_free(names, count);
    return train != NULL;
}

const char *detect_format(const char *path)
{
    const struct sign *sign = find_sign(path, NULL);
    if (sign) return sign->format;
    if (!directory_is(path)) return detect_table(path) ? "csv" : "packed";
    const char *format = format_by_entries(path);
    return format ? format : "folder";
}

const char *detect_other(const char *format, const char *path)
{
    struct reason reason;
    if (find_sign(path, format) || !detect_check(format, path, &reason)) return NULL;
    const struct sign *sign = find_sign(path, NULL);
    const char *other = sign                  ? sign->format
                        : detect_packed(path) ? "packed"
                        : detect_table(path)  ? "csv"
                                              : format_by_entries(path);
    return other && strcmp(other, format) != 0 ? other : NULL;
}

static bool ends_in_archive(const char *path)
{
    static const char *const endings[] = {".tar.gz", ".tgz", ".zip", ".tar.xz", ".tar.bz2"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (text_ends_in(path, endings[i])) return true;
    return false;
}

bool detect_check(const char *format, const char *path, struct reason *reason)
{
    struct stat status;
    if (ends_in_archive(path) && stat(path, &status) == 0 && S_ISREG(status.st_mode))
        return because_of(reason, path, "a compressed archive: unpack it and name the folder");
    const struct sign *sign = find_sign(path, format);
    if (sign && strcmp(sign->below, ".") != 0) {
        char why[128];
        snprintf(why, sizeof why, "the %s files are in its folder %s: use that path", format, sign->below);
        return because_of(reason, path, why);
    }
    for (int i = 0; !sign && strncmp(format, "cifar", 5) == 0 && pickles[i]; i++)
        if (has_file(path, ".", pickles[i]))
            return because_of(reason, path, "this is CIFAR for Python; get the \"binary version\"");
    return true;
}
