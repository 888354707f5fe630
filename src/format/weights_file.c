#include "format/weights_file.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_kind.h"
#include "base/memory.h"
#include "base/text.h"

#define INDEX_ENDING ".safetensors.index.json"
#define INDEX_BYTES_MAX (32 << 20)

static void add_entry(struct weights_file *file, int part, int at)
{
    const struct safetensors_entry *from = &file->parts[part].entries[at];
    file->entries[file->count++] =
        (struct weights_entry){text_copy(from->name), from->dtype, from->shape, part, at, {0}, 0};
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
            (struct weights_entry){text_copy(from->name), from->dtype, from->shape, 0, file->count, {0}, 0};
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
        size_t tensors = json_object_size(map);            /* and at most as many files */
        char **names = memory_new(tensors + 1, sizeof *names);
        file->parts = memory_new(tensors + 1, sizeof *file->parts);
        file->entries = memory_new(tensors + 1, sizeof *file->entries);
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
    char head[FILE_KIND_BYTES];
    struct reason unused;
    struct stat status;
    int file = directory_file(&directory_working, path, O_RDONLY, &unused);
    if (file < 0) return false;
    ssize_t got = fstat(file, &status) == 0 ? file_read(file, head, sizeof head, 0) : -1;
    close(file);
    if (got < 0) return false;
    enum kind_of_file kind = file_kind(head, (size_t)got, (uint64_t)status.st_size).kind;
    return kind == FILE_TORCH || kind == FILE_TORCH_OLD || kind == FILE_PICKLE || kind == FILE_TAR;
}

bool weights_file_open(const char *path, struct weights_file *file, struct reason *reason)
{
    struct weights_file opened = {.path = text_copy(path)};
    bool good = text_ends_in(path, INDEX_ENDING) ? open_index(&opened, reason)
                : is_torch(path)                 ? open_torch(&opened, reason)
                                                 : open_single(&opened, reason);
    if (good && opened.count > 0)
        qsort(opened.entries, (size_t)opened.count, sizeof *opened.entries, text_compare);
    if (good) *file = opened;
    else weights_file_close(&opened);
    return good;
}

void weights_file_close(struct weights_file *file)
{
    if (!file->path) return;
    for (int i = 0; i < file->part_count; i++) safetensors_close(&file->parts[i]);
    torch_file_close(&file->torch);
    for (int i = 0; i < file->count + file->made; i++) free(file->entries[i].name);
    free(file->parts);
    free(file->entries);
    free(file->path);
    *file = (struct weights_file){0};
}

static int find_made(const struct weights_file *file, const char *name)
{
    for (int i = file->count; i < file->count + file->made; i++)
        if (strcmp(file->entries[i].name, name) == 0) return i;
    return -1;
}

int weights_file_find(const struct weights_file *file, const char *name)
{
    if (file->count == 0) return -1;
    const struct weights_entry key = {.name = (char *)name};
    const struct weights_entry *found =
        bsearch(&key, file->entries, (size_t)file->count, sizeof key, text_compare);
    return found ? (int)(found - file->entries) : find_made(file, name);
}

/* ---- Tensors that are made of others ---- */

bool weights_file_is_expression(const char *name)
{
    return strpbrk(name, WEIGHTS_SIGNS) != NULL;
}

static bool add_source(const struct weights_file *file, const char *name, struct weights_entry *made)
{
    int found = weights_file_find(file, name);
    if (found < 0 || found >= file->count || made->source_count == WEIGHTS_SOURCES_MAX) return false;
    made->sources[made->source_count++] = found;
    return true;
}

static const struct weights_entry *source_of(const struct weights_file *file,
                                             const struct weights_entry *made, int i)
{
    return &file->entries[made->sources[i]];
}

/* "A{b,c}E" */
static bool make_joined(const struct weights_file *file, const char *open, struct weights_entry *made)
{
    const char *close = strchr(open, '}'), *at = open + 1;
    if (!close) return false;
    while (at <= close) {
        int length = (int)strcspn(at, ",}");
        char *name = text_format("%.*s%.*s%s", (int)(open - made->name), made->name, length, at, close + 1);
        bool found = add_source(file, name, made);
        free(name);
        if (!found) return false;
        at += length + 1;
    }
    const struct weights_entry *first = source_of(file, made, 0);
    for (int i = 1; i < made->source_count; i++) {
        const struct weights_entry *other = source_of(file, made, i);
        if (!shape_equal(first->shape, other->shape) || first->dtype != other->dtype) return false;
    }
    made->shape = first->shape;
    made->shape.dim[0] *= made->source_count;
    return first->shape.rank > 0;
}

/* "A[N:]" */
static bool make_tail(const struct weights_file *file, const char *open, struct weights_entry *made)
{
    char *end, *name = text_format("%.*s", (int)(open - made->name), made->name);
    long long skipped = strtoll(open + 1, &end, 10);
    bool good = strcmp(end, ":]") == 0 && add_source(file, name, made);
    free(name);
    if (!good) return false;
    made->shape = source_of(file, made, 0)->shape;
    if (made->shape.rank != 3 || made->shape.dim[0] != 1 || skipped < 1) return false;
    made->shape.dim[1] -= skipped;
    return made->shape.dim[1] > 0;
}

/* "A+B" */
static bool make_sum(const struct weights_file *file, const char *plus, struct weights_entry *made)
{
    char *name = text_format("%.*s", (int)(plus - made->name), made->name);
    bool good = add_source(file, name, made) && add_source(file, plus + 1, made);
    free(name);
    if (!good) return false;
    const struct weights_entry *first = source_of(file, made, 0), *second = source_of(file, made, 1);
    made->shape = first->shape;
    return made->shape.rank == 3 && second->shape.rank == 3 && made->shape.dim[0] == 1 &&
           second->shape.dim[0] == 1 && made->shape.dim[1] <= second->shape.dim[1] &&
           made->shape.dim[2] == second->shape.dim[2] && first->dtype == second->dtype;
}

static bool read_stored(const struct weights_file *file, int entry, void *data, struct reason *reason)
{
    const struct weights_entry *from = &file->entries[entry];
    return file->parts ? safetensors_read(&file->parts[from->part], from->at, data, reason)
                       : torch_file_read(&file->torch, from->at, data, reason);
}

/* The halves of a source's columns; `made` has room for one. False: it cannot be read. */
static bool read_halves(const struct weights_file *file, const struct weights_entry *made, void *data,
                        bool *zeros, struct reason *reason)
{
    const struct weights_entry *from = source_of(file, made, 0);
    size_t bytes = dtype_bytes(from->dtype), half = (size_t)made->shape.dim[1] * bytes;
    char *read = memory_try((size_t)shape_count(from->shape), bytes);
    if (!read) return because(reason, "needs more memory than is available");
    bool good = read_stored(file, made->sources[0], read, reason);
    *zeros = true;
    for (int64_t row = 0; good && row < made->shape.dim[0]; row++) {
        const char *at = read + (size_t)row * 2 * half;
        if (data) memcpy((char *)data + (size_t)row * half, at, half);
        for (size_t i = half; i < 2 * half; i++) *zeros = *zeros && at[i] == 0;
    }
    free(read);
    return good;
}

/* "A|" */
static bool make_half(const struct weights_file *file, const char *sign, struct weights_entry *made)
{
    bool zeros;
    struct reason unsaid;
    char *name = text_format("%.*s", (int)(sign - made->name), made->name);
    bool good = sign[1] == '\0' && add_source(file, name, made);
    free(name);
    if (!good) return false;
    made->shape = source_of(file, made, 0)->shape;
    if (made->shape.rank != 2 || made->shape.dim[1] < 2 || made->shape.dim[1] % 2 != 0) return false;
    made->shape.dim[1] /= 2;
    return read_halves(file, made, NULL, &zeros, &unsaid) && zeros;
}

bool weights_file_make(struct weights_file *file, const char *expression)
{
    if (find_made(file, expression) >= 0) return true;
    struct weights_entry made = {.name = text_copy(expression)};
    const char *sign = strpbrk(made.name, WEIGHTS_SIGNS);
    bool good = sign && (*sign == '{'   ? make_joined(file, sign, &made)
                         : *sign == '[' ? make_tail(file, sign, &made)
                         : *sign == '|' ? make_half(file, sign, &made)
                                        : make_sum(file, sign, &made));
    if (!good) {
        free(made.name);
        return false;
    }
    made.dtype = source_of(file, &made, 0)->dtype;
    size_t count = (size_t)(file->count + file->made++);
    file->entries = memory_resize(file->entries, count + 1, sizeof made);
    file->entries[count] = made;
    return true;
}

/* For a second source that is larger than the result, or as large: its first numbers are added; of the only
 * one, the last are taken. */
static bool read_larger(const struct weights_file *file, const struct weights_entry *made, void *data,
                        struct reason *reason)
{
    const struct weights_entry *from = source_of(file, made, made->source_count - 1);
    int64_t count = shape_count(made->shape), all = shape_count(from->shape);
    size_t bytes = dtype_bytes(made->dtype);
    char *read = memory_try((size_t)all, bytes);
    if (!read) return because(reason, "needs more memory than is available");
    bool good = read_stored(file, (int)(from - file->entries), read, reason);
    if (good && made->source_count == 1)
        memcpy(data, read + (size_t)(all - count) * bytes, (size_t)count * bytes);
    for (int64_t i = 0; good && made->source_count > 1 && i < count; i++)
        dtype_set(made->dtype, data, i, dtype_get(made->dtype, data, i) + dtype_get(made->dtype, read, i));
    free(read);
    return good;
}

static bool read_made(const struct weights_file *file, const struct weights_entry *made, void *data,
                      struct reason *reason)
{
    const char *sign = strpbrk(made->name, WEIGHTS_SIGNS);
    size_t bytes = 0;
    bool unused;
    if (*sign == '|') return read_halves(file, made, data, &unused, reason);
    for (int i = 0; i < (*sign == '{' ? made->source_count : made->source_count - 1); i++) {
        if (!read_stored(file, made->sources[i], (char *)data + bytes, reason)) return false;
        bytes += (size_t)shape_count(source_of(file, made, i)->shape) * dtype_bytes(made->dtype);
    }
    return *sign == '{' || read_larger(file, made, data, reason);
}

bool weights_file_read(const struct weights_file *file, int entry, void *data, struct reason *reason)
{
    const struct weights_entry *from = &file->entries[entry];
    return from->source_count > 0 ? read_made(file, from, data, reason)
                                  : read_stored(file, entry, data, reason);
}
