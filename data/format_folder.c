/* A folder of class folders: PNG and JPEG files at any depth in them, known by their first bytes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/dataset.h"

/* A link that leads back up would otherwise be followed for ever. */
#define DEPTH_MAX 16

struct file {
    size_t name;               /* where its path begins in `names` */
    int label;
};

struct folder {
    char *root;
    char *names;               /* "class/.../file", each ended by '\0' */
    size_t length, room;
    struct file *files;
    size_t count;
    int64_t ignored;           /* files that are neither PNG nor JPEG */
    char *example;             /* one of them */
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
}

/* What a directory holds, sorted bytewise, hidden files left out. False: it cannot be read. */
static bool list_directory(const char *path, char ***names, size_t *count)
{
    DIR *directory = opendir(path);
    if (!directory) return false;
    struct dirent *entry;
    *names = NULL;
    *count = 0;
    while ((entry = readdir(directory)))
        if (entry->d_name[0] != '.') *array_push(*names, *count) = text_copy(entry->d_name);
    closedir(directory);
    if (*count) qsort(*names, *count, sizeof **names, compare_names);
    return true;
}

/* True too for what is empty or cannot be read: such a file is a bad image, not no image, and is
 * counted as one when its turn comes. */
static bool looks_like_image(const char *path)
{
    uint8_t bytes[IMAGE_SNIFF_BYTES];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return true;
    ssize_t count = read(file, bytes, sizeof bytes);
    close(file);
    return count <= 0 || image_sniff(bytes, (size_t)count) != IMAGE_UNKNOWN;
}

static void add_file(struct folder *folder, const char *name, int label)
{
    size_t bytes = strlen(name) + 1;
    if (folder->length + bytes > folder->room) {
        folder->room = 2 * folder->room + bytes + 4096;
        folder->names = memory_resize(folder->names, folder->room, 1);
    }
    memcpy(folder->names + folder->length, name, bytes);
    *array_push(folder->files, folder->count) = (struct file){.name = folder->length, .label = label};
    folder->length += bytes;
}

static bool walk(struct folder *folder, const char *name, int label, int depth, struct reason *reason);

static bool visit(struct folder *folder, const char *name, int label, int depth, struct reason *reason)
{
    struct stat stat_of;
    char *path = text_format("%s/%s", folder->root, name);
    bool there = stat(path, &stat_of) == 0, good = true;
    if (there && S_ISDIR(stat_of.st_mode)) {
        good = walk(folder, name, label, depth + 1, reason);
    } else if (!there || (S_ISREG(stat_of.st_mode) && looks_like_image(path))) {
        add_file(folder, name, label);
    } else {
        folder->ignored++;
        if (!folder->example) folder->example = text_copy(path);
    }
    free(path);
    return good;
}

/* Adds the images of the folder `name`, a path below the root, and of the folders in it. */
static bool walk(struct folder *folder, const char *name, int label, int depth, struct reason *reason)
{
    char **names;
    size_t count;
    char *path = text_format("%s/%s", folder->root, name);
    bool good = depth <= DEPTH_MAX ? list_directory(path, &names, &count) ||
                                         because(reason, "%s: %s", path, strerror(errno))
                                   : because(reason, "%s: folders are nested too deep", path);
    free(path);
    if (!good) return false;
    for (size_t i = 0; i < count && good; i++) {
        char *child = text_format("%s/%s", name, names[i]);
        good = visit(folder, child, label, depth, reason);
        free(child);
    }
    free_names(names, count);
    return good;
}

/* The folders in the root, sorted: the classes found. */
static enum status find_classes(const char *root, char ***classes, size_t *count)
{
    char **names;
    size_t all, kept = 0;
    if (!list_directory(root, &names, &all)) return fail(BAD_DATA, "%s: %s", root, strerror(errno));
    for (size_t i = 0; i < all; i++) {
        struct stat stat_of;
        char *path = text_format("%s/%s", root, names[i]);
        bool is_class = stat(path, &stat_of) == 0 && S_ISDIR(stat_of.st_mode);
        free(path);
        if (is_class)
            names[kept++] = names[i];
        else
            free(names[i]);
    }
    if (kept == 0) {
        free_names(names, kept);
        return fail(BAD_DATA, "%s: holds no class folders (images belong in %s/CLASS/)", root, root);
    }
    *classes = names;
    *count = kept;
    return OK;
}

static int label_of(const struct dataset *dataset, const char *name)
{
    for (int i = 0; i < dataset->classes; i++)
        if (strcmp(dataset->class_names[i], name) == 0) return i;
    return -1;
}

static enum status add_class(struct dataset *dataset, const char *name, struct text *empty)
{
    struct folder *folder = dataset->state;
    struct reason reason;
    size_t before = folder->count;
    int label = label_of(dataset, name);
    if (label < 0)
        return fail(BAD_DATA, "%s/%s: no such class among the %d known ones, such as %s", folder->root, name,
                    dataset->classes, dataset->class_names[0]);
    if (!walk(folder, name, label, 0, &reason)) return fail(BAD_DATA, "%s", reason.text);
    if (folder->count == before) text_add(empty, "%s%s", empty->length ? ", " : "", name);
    return OK;
}

static enum status add_classes(struct dataset *dataset, char **found, size_t count, struct text *empty)
{
    for (size_t i = 0; i < count; i++) TRY(add_class(dataset, found[i], empty));
    const struct folder *folder = dataset->state;
    if (folder->count == 0)
        return fail(BAD_DATA, "%s: no PNG or JPEG image in its class folders", folder->root);
    if (empty->length)
        return fail(BAD_DATA, "%s: class folders without images: %s", folder->root, empty->data);
    return OK;
}

static void copy_names(struct dataset *dataset, char *const *names, int count)
{
    dataset->classes = count;
    dataset->class_names = memory_new((size_t)count, sizeof *dataset->class_names);
    for (int i = 0; i < count; i++) dataset->class_names[i] = text_copy(names[i]);
}

static enum status folder_open(const struct dataset_options *options, struct dataset *dataset)
{
    struct folder *folder = dataset->state = memory_new(1, sizeof *folder);
    if (!options->path) return fail(BAD_DATA, "folder: no folder is given");
    folder->root = text_copy(options->path);
    char **found = NULL;
    size_t count = 0;
    TRY(find_classes(folder->root, &found, &count));
    if (options->class_names)
        copy_names(dataset, options->class_names, options->class_count);
    else
        copy_names(dataset, found, (int)count);
    struct text empty = {0};
    enum status status = add_classes(dataset, found, count, &empty);
    text_free(&empty);
    free_names(found, count);
    TRY(status);
    if (folder->ignored)
        log_warning("%s: %lld files that are neither PNG nor JPEG are left out, such as %s", folder->root,
                    (long long)folder->ignored, folder->example);
    dataset->count = (int64_t)folder->count;
    dataset->c = options->c == 1 ? 1 : 3;
    return OK;
}

static char *folder_image_path(const struct dataset *dataset, int64_t index)
{
    const struct folder *folder = dataset->state;
    return text_format("%s/%s", folder->root, folder->names + folder->files[index].name);
}

static bool folder_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                        struct image *image, int *label, struct reason *reason)
{
    const struct folder *folder = dataset->state;
    const struct file *file = &folder->files[index];
    *label = file->label;
    char *path = folder_image_path(dataset, index);
    bool good = image_load(path, dataset->c, choice, image, reason);
    free(path);
    return good;
}

static bool folder_read_file(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                             int *label, struct reason *reason)
{
    const struct folder *folder = dataset->state;
    char *path = folder_image_path(dataset, index);
    bool good = image_read_file(path, bytes, count, reason);
    *label = folder->files[index].label;
    free(path);
    return good;
}

static void folder_close(struct dataset *dataset)
{
    struct folder *folder = dataset->state;
    if (!folder) return;
    free(folder->root);
    free(folder->names);
    free(folder->files);
    free(folder->example);
    free(folder);
}

const struct format format_folder = {
    .name = "folder",
    .help = "a folder with one folder of PNG or JPEG images for each class, named as the class",
    .open = folder_open,
    .read = folder_read,
    .read_file = folder_read_file,
    .image_path = folder_image_path,
    .close = folder_close,
};
