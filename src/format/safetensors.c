#include "format/safetensors.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/file_kind.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/checksum.h"

static bool read_bytes(int file, int64_t from, void *data, int64_t bytes, struct reason *reason)
{
    ssize_t got = file_read(file, data, (size_t)bytes, from);
    if (got < 0) return because_errno(reason, "cannot be read");
    return got == bytes || because(reason, "ends too early");
}

static bool read_length(int file, int64_t size, int64_t *length, struct reason *reason)
{
    uint8_t bytes[FILE_KIND_BYTES];
    int64_t count = size < FILE_KIND_BYTES ? size : FILE_KIND_BYTES;
    if (size < 8) return because(reason, "is too short (%" PRId64 " bytes) to be a safetensors file", size);
    if (!read_bytes(file, 0, bytes, count, reason)) return false;
    struct file_kind is = file_kind(bytes, (size_t)count, (uint64_t)size);
    if (is.kind == FILE_TORCH || is.kind == FILE_TORCH_OLD || is.kind == FILE_PICKLE)
        return because(reason, "is a file of PyTorch, not safetensors");
    if (is.kind != FILE_UNKNOWN && is.kind != FILE_SAFETENSORS)
        return because(reason, "is %s, not safetensors", is.name);
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | bytes[i];
    if (value > SAFETENSORS_HEADER_MAX || value > (uint64_t)(size - 8) || value < 2)
        return because(
            reason, "is truncated or not a safetensors file: its header claims %" PRIu64 " bytes", value);
    *length = (int64_t)value;
    return true;
}

static bool dtype_parse(const char *name, enum dtype *dtype)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(dtype_table[i].safetensors, name) == 0) {
            *dtype = (enum dtype)i;
            return true;
        }
    }
    return false;
}

static bool parse_shape(const json_t *array, struct shape *shape, struct reason *reason)
{
    if (!json_is_array(array)) return because(reason, "has no shape");
    size_t rank = json_array_size(array);
    if (rank > 4) return because(reason, "has %zu dimensions; at most 4 can be used", rank);
    *shape = (struct shape){.rank = (int)rank, .dim = {1, 1, 1, 1}};
    for (size_t i = 0; i < rank; i++) {
        const json_t *number = json_array_get(array, i);
        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return because(reason, "has a shape that is not numeric");
        shape->dim[i] = json_integer_value(number);
    }
    return true;
}

/* The bytes of a tensor of this shape, checked for overflow; false if no file could contain it. */
static bool shape_bytes(const struct shape *shape, enum dtype dtype, int64_t *bytes)
{
    int64_t total = (int64_t)dtype_bytes(dtype);
    for (int i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(total, shape->dim[i], &total)) return false;
    *bytes = total;
    return true;
}

static bool parse_offsets(const json_t *offsets, int64_t data_bytes, struct safetensors_entry *entry,
                          struct reason *reason)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return because(reason, "has no data_offsets");
    entry->begin = json_integer_value(begin);
    entry->end = json_integer_value(end);
    if (entry->begin < 0 || entry->end < entry->begin || entry->end > data_bytes)
        return because(reason, "lies outside of the file");
    int64_t bytes;
    if (!shape_bytes(&entry->shape, entry->dtype, &bytes) || bytes != entry->end - entry->begin)
        return because(reason, "has %" PRId64 " bytes, which do not match its shape",
                       entry->end - entry->begin);
    return true;
}

static bool parse_entry(const json_t *object, int64_t data_bytes, struct safetensors_entry *entry,
                        struct reason *reason)
{
    if (!json_is_object(object)) return because(reason, "must have dtype, shape and data_offsets");
    const char *dtype = json_string_value(json_object_get(object, "dtype"));
    if (!dtype) return because(reason, "has no dtype");
    if (!dtype_parse(dtype, &entry->dtype))
        return because(reason, "has the type %.20s, which is not supported", dtype);
    if (!parse_shape(json_object_get(object, "shape"), &entry->shape, reason)) return false;
    return parse_offsets(json_object_get(object, "data_offsets"), data_bytes, entry, reason);
}

static bool parse_metadata(json_t *object, struct safetensors *file, struct reason *reason)
{
    if (!json_is_object(object)) return because(reason, "has metadata that are not an object");
    file->metadata = memory_new(json_object_size(object), sizeof *file->metadata);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (!json_is_string(value)) return because(reason, "has metadata '%.40s' that is not text", key);
        file->metadata[file->metadata_count++] =
            (struct safetensors_pair){text_copy(key), text_copy(json_string_value(value))};
    }
    return true;
}

static bool parse_entries(json_t *root, int64_t data_bytes, struct safetensors *file, struct reason *reason)
{
    file->entries = memory_new(json_object_size(root), sizeof *file->entries);
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value) {
        if (strcmp(name, "__metadata__") == 0) {
            if (!parse_metadata(value, file, reason)) return false;
            continue;
        }
        struct safetensors_entry *entry = &file->entries[file->count++];
        entry->name = text_copy(name);
        struct reason why;
        if (!parse_entry(value, data_bytes, entry, &why))
            return because(reason, "tensor '%.100s' %.120s", name, why.text);
    }
    return true;
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Every byte after the header belongs to exactly one tensor. */
static bool check_layout(struct safetensors *file, int64_t data_bytes, struct reason *reason)
{
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_offset);
    int64_t end = 0;
    for (int i = 0; i < file->count; i++) {
        if (file->entries[i].begin != end)
            return because(reason, "has a gap or an overlap before tensor '%.100s'", file->entries[i].name);
        end = file->entries[i].end;
    }
    if (end != data_bytes)
        return because(reason, "has %" PRId64 " bytes of data, but its header says %" PRId64,
                       data_bytes, end);
    return true;
}

static bool check_header(struct safetensors *file, char *header, int64_t length, struct reason *reason)
{
    const char *expected = safetensors_value(file, CHECKSUM_HEADER_KEY);
    if (!expected) return true;
    char actual[CHECKSUM_TEXT];
    if (!checksum_header(header, (size_t)length, actual) || strcmp(actual, expected) != 0)
        return because(reason, "has a damaged header (checksum %s, not %.8s)", actual, expected);
    file->checksummed = true;
    return true;
}

/* Bytes of a tensor's header entry besides its name: braces, brackets, commas, and some to spare. */
#define TENSOR_MARKS 16

static bool parse_header(struct safetensors *file, char *header, int64_t length, int64_t data_bytes,
                         struct reason *reason)
{
    if (header[0] != '{') return because(reason, "has a header that does not begin with '{'");
    if (text_json_marks(header, (size_t)length) > (size_t)SAFETENSORS_TENSORS_MAX * TENSOR_MARKS)
        return because(reason, "has a header of more than %d tensors", SAFETENSORS_TENSORS_MAX);
    json_error_t error;
    json_t *root = json_loadb(header, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!root) return because(reason, "has a damaged header: %.150s", error.text);
    bool good = parse_entries(root, data_bytes, file, reason);
    json_decref(root);
    if (!good || !check_layout(file, data_bytes, reason)) return false;
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, text_compare);
    if (file->metadata_count > 0)
        qsort(file->metadata, (size_t)file->metadata_count, sizeof *file->metadata, text_compare);
    return check_header(file, header, length, reason);
}

static bool open_file(const struct directory *in, const char *name, struct safetensors *file,
                      struct reason *reason)
{
    file->path = directory_show(in, name);
    struct reason why;
    file->file = directory_file(in, name, O_RDONLY, &why);
    if (file->file < 0) {
        because(reason, "cannot be opened: %s", why.text);
        reason->error = why.error;
        return false;
    }
    struct stat status;
    if (fstat(file->file, &status) != 0) return because_errno(reason, "cannot be read");
    int64_t length = 0;
    if (!read_length(file->file, status.st_size, &length, reason)) return false;
    file->data = 8 + length;
    char *header = memory_try((size_t)length + 1, 1);
    if (!header) return because_errno(reason, "its header cannot be read");
    bool good = read_bytes(file->file, 8, header, length, reason) &&
                parse_header(file, header, length, status.st_size - file->data, reason);
    free(header);
    return good;
}

bool safetensors_open(const char *path, struct safetensors *file, struct reason *reason)
{
    return safetensors_open_in(&directory_working, path, file, reason);
}

bool safetensors_open_in(const struct directory *in, const char *name, struct safetensors *file,
                         struct reason *reason)
{
    struct safetensors opened = {.file = -1};
    if (!open_file(in, name, &opened, reason)) {
        safetensors_close(&opened);
        return false;
    }
    *file = opened;
    return true;
}

void safetensors_close(struct safetensors *file)
{
    if (!file->path) return;
    if (file->file >= 0) close(file->file);
    for (int i = 0; i < file->count; i++) free(file->entries[i].name);
    for (int i = 0; i < file->metadata_count; i++) {
        free(file->metadata[i].key);
        free(file->metadata[i].value);
    }
    free(file->entries);
    free(file->metadata);
    free(file->path);
    *file = (struct safetensors){.file = -1};
}

int safetensors_find(const struct safetensors *file, const char *name)
{
    if (file->count == 0) return -1;
    struct safetensors_entry key = {.name = (char *)name};
    const struct safetensors_entry *found =
        bsearch(&key, file->entries, (size_t)file->count, sizeof key, text_compare);
    return found ? (int)(found - file->entries) : -1;
}

const char *safetensors_value(const struct safetensors *file, const char *key)
{
    if (file->metadata_count == 0) return NULL;
    struct safetensors_pair wanted = {.key = (char *)key};
    const struct safetensors_pair *found =
        bsearch(&wanted, file->metadata, (size_t)file->metadata_count, sizeof wanted, text_compare);
    return found ? found->value : NULL;
}

static const char *checksum_of(const struct safetensors *file, const char *name)
{
    char *key = checksum_key(name);
    const char *value = safetensors_value(file, key);
    free(key);
    return value;
}

static bool read_part(const struct safetensors *file, const struct safetensors_entry *from, int64_t at,
                      void *data, int64_t bytes, struct reason *reason)
{
    struct reason why;
    if (read_bytes(file->file, file->data + from->begin + at, data, bytes, &why)) return true;
    because(reason, "tensor '%.100s' %.120s", from->name, why.text);
    reason->error = why.error;
    return false;
}

static bool check_sum(const struct safetensors *file, const struct safetensors_entry *from, uint32_t crc,
                      struct reason *reason)
{
    const char *expected = checksum_of(file, from->name);
    if (!expected) return true;
    char actual[CHECKSUM_TEXT];
    checksum_text(crc, actual);
    return strcmp(actual, expected) == 0 ||
           because(reason, "tensor '%.100s' is damaged (checksum %s, not %.8s)", from->name, actual,
                   expected);
}

bool safetensors_read(const struct safetensors *file, int entry, void *data, struct reason *reason)
{
    const struct safetensors_entry *from = &file->entries[entry];
    int64_t bytes = from->end - from->begin;
    return read_part(file, from, 0, data, bytes, reason) &&
           check_sum(file, from, crc32c(0, data, (size_t)bytes), reason);
}

bool safetensors_verify(const struct safetensors *file, int entry, struct reason *reason)
{
    const struct safetensors_entry *from = &file->entries[entry];
    int64_t bytes = from->end - from->begin, piece = 1 << 20;
    void *data = memory_new((size_t)(bytes < piece ? bytes : piece), 1);
    uint32_t crc = 0;
    bool good = true;
    for (int64_t at = 0; good && at < bytes; at += piece) {
        int64_t part = bytes - at < piece ? bytes - at : piece;
        good = read_part(file, from, at, data, part, reason);
        crc = crc32c(crc, data, (size_t)part);
    }
    free(data);
    return good && check_sum(file, from, crc, reason);
}

bool safetensors_complete(const struct safetensors *file, struct reason *reason)
{
    if (!file->checksummed) return because(reason, "has no header checksum");
    for (int i = 0; i < file->count; i++)
        if (!checksum_of(file, file->entries[i].name))
            return because(reason, "has no checksum for tensor '%.100s'", file->entries[i].name);
    return true;
}
