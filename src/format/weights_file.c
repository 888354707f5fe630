#include "format/weights_file.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#define INDEX_ENDING ".safetensors.index.json"
#define INDEX_BYTES_MAX (32 << 20)
#define PARTS_MAX 1000

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct weights_entry *)a)->name, ((const struct weights_entry *)b)->name);
}

static void add_entry(struct weights_file *file, int part, int at)
{
    const struct safetensors_entry *from = &file->parts[part].entries[at];
    file->entries[file->count++] =
        (struct weights_entry){text_copy(from->name), from->dtype, from->shape, part, at};
}

static bool open_single(struct weights_file *file, struct reason *reason)
{
    file->parts = memory_new(1, sizeof *file->parts);
    if (!safetensors_open(file->path, file->parts, reason)) return false;
    file->part_count = 1;
    file->described = file->parts[0];
    file->entries = memory_new((size_t)file->parts->count + 1, sizeof *file->entries);
    for (int i = 0; i < file->parts->count; i++) add_entry(file, 0, i);
    return true;
}

static bool open_torch(struct weights_file *file, struct reason *reason)
{
    if (!torch_file_open(file->path, &file->torch, reason)) return false;
    file->entries = memory_new((size_t)file->torch.count + 1, sizeof *file->entries);
    for (; file->count < file->torch.count; file->count++) {
        const struct torch_entry *from = &file->torch.entries[file->count];
        file->entries[file->count] =
            (struct weights_entry){text_copy(from->name), from->dtype, from->shape, 0, file->count};
    }
    return true;
}

/* ---- Several files: {"weight_map": {"NAME": "FILE", ...}} ---- */

/* The open file of this name beside the index. */
static bool open_part(struct weights_file *file, char **names, const char *name, int *part,
                      struct reason *reason)
{
    for (*part = 0; *part < file->part_count; ++*part)
        if (strcmp(names[*part], name) == 0) return true;
    if (*name == '\0' || strchr(name, '/')) return because(reason, "names '%.80s', which is no file", name);
    if (*part >= PARTS_MAX) return because(reason, "has more than %d files", PARTS_MAX);
    const char *slash = strrchr(file->path, '/');
    char *path = text_format("%.*s%s", slash ? (int)(slash + 1 - file->path) : 0, file->path, name);
    struct reason why;
    bool good = safetensors_open(path, &file->parts[*part], &why) ||
                because(reason, "its part '%.80s' %.120s", name, why.text);
    free(path);
    if (!good) return false;
    names[*part] = text_copy(name);
    file->part_count++;
    return true;
}

static bool map_entries(struct weights_file *file, const json_t *map, char **names, struct reason *reason)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value) {
        int part;
        if (!json_is_string(value)) return because(reason, "has no file for tensor '%.100s'", name);
        if (!open_part(file, names, json_string_value(value), &part, reason)) return false;
        int at = safetensors_find(&file->parts[part], name);
        if (at < 0)
            return because(reason, "its part '%.80s' has no tensor '%.80s'", names[part], name);
        add_entry(file, part, at);
    }
    return true;
}

static bool read_map(struct weights_file *file, const char *index, size_t bytes, struct reason *reason)
{
    json_error_t error;
    json_t *root = json_loadb(index, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) return because(reason, "is a damaged index: %.150s", error.text);
    const json_t *map = json_object_get(root, "weight_map");
    bool good = json_is_object(map) || because(reason, "is not an index of safetensors files: it has no "
                                               "weight_map");
    if (good) {
        char **names = memory_new(PARTS_MAX, sizeof *names);
        file->parts = memory_new(PARTS_MAX, sizeof *file->parts);
        file->entries = memory_new(json_object_size(map) + 1, sizeof *file->entries);
        good = map_entries(file, map, names, reason);
        text_list_free(names, (size_t)file->part_count);
    }
    json_decref(root);
    return good;
}

static bool open_index(struct weights_file *file, struct reason *reason)
{
    struct reason why;
    struct stat status;
    int index = directory_file(&directory_working, file->path, O_RDONLY, &why);
    if (index < 0) {
        because(reason, "cannot be opened: %s", why.text);
        reason->error = why.error;
        return false;
    }
    bool good = fstat(index, &status) == 0 || because_errno(reason, "cannot be read");
    if (good && status.st_size > INDEX_BYTES_MAX) good = because(reason, "is too long to be an index");
    char *content = good ? memory_new((size_t)status.st_size + 1, 1) : NULL;
    if (good && file_read(index, content, (size_t)status.st_size, 0) != status.st_size)
        good = because_errno(reason, "cannot be read");
    good = good && (text_json_marks(content, (size_t)status.st_size) <= SAFETENSORS_TENSORS_MAX * 2 ||
                    because(reason, "is an index of too many tensors"));
    good = good && read_map(file, content, (size_t)status.st_size, reason);
    free(content);
    close(index);
    return good;
}

/* Errors of opening are reported by the format's own code. */
static bool is_torch(const char *path)
{
    char head[512];
    struct reason unused;
    int file = directory_file(&directory_working, path, O_RDONLY, &unused);
    if (file < 0) return false;
    ssize_t got = file_read(file, head, sizeof head, 0);
    close(file);
    return got > 0 && torch_file_sniff(head, (size_t)got);
}

bool weights_file_open(const char *path, struct weights_file *file, struct reason *reason)
{
    struct weights_file opened = {.path = text_copy(path)};
    bool good = text_ends_in(path, INDEX_ENDING) ? open_index(&opened, reason)
                : is_torch(path)                 ? open_torch(&opened, reason)
                                                 : open_single(&opened, reason);
    if (good && opened.count > 0)
        qsort(opened.entries, (size_t)opened.count, sizeof *opened.entries, by_name);
    if (good) *file = opened;
    else weights_file_close(&opened);
    return good;
}

void weights_file_close(struct weights_file *file)
{
    if (!file->path) return;
    for (int i = 0; i < file->part_count; i++) safetensors_close(&file->parts[i]);
    torch_file_close(&file->torch);
    for (int i = 0; i < file->count; i++) free(file->entries[i].name);
    free(file->parts);
    free(file->entries);
    free(file->path);
    *file = (struct weights_file){0};
}

int weights_file_find(const struct weights_file *file, const char *name)
{
    if (file->count == 0) return -1;
    const struct weights_entry key = {.name = (char *)name};
    const struct weights_entry *found =
        bsearch(&key, file->entries, (size_t)file->count, sizeof key, by_name);
    return found ? (int)(found - file->entries) : -1;
}

bool weights_file_read(const struct weights_file *file, int entry, void *data, struct reason *reason)
{
    const struct weights_entry *from = &file->entries[entry];
    return file->parts ? safetensors_read(&file->parts[from->part], from->at, data, reason)
                       : torch_file_read(&file->torch, from->at, data, reason);
}
