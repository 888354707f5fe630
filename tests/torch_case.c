#include "tests/torch_case.h"

#include <stdlib.h>
#include <string.h>

#include "base/deflated.h"
#include "base/memory.h"

void bytes_add(struct bytes *bytes, const void *data, size_t count)
{
    if (bytes->count + count > bytes->room) {
        bytes->room = 2 * (bytes->count + count);
        bytes->data = memory_resize(bytes->data, bytes->room, 1);
    }
    if (count > 0) memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
}

void bytes_number(struct bytes *bytes, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) bytes_add(bytes, &(uint8_t){(uint8_t)(value >> (8 * i))}, 1);
}

void bytes_free(struct bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct bytes){0};
}

void pickle_code(struct bytes *pickle, const char *code) { bytes_add(pickle, code, strlen(code)); }

void pickle_text(struct bytes *pickle, const char *text)
{
    pickle_code(pickle, "X");
    bytes_number(pickle, strlen(text), 4);
    pickle_code(pickle, text);
}

void pickle_number(struct bytes *pickle, int64_t value)
{
    pickle_code(pickle, "\x8a\x08");
    bytes_number(pickle, (uint64_t)value, 8);
}

void pickle_tuple(struct bytes *pickle, const int64_t *values, int count)
{
    pickle_code(pickle, "(");
    for (int i = 0; i < count; i++) pickle_number(pickle, values[i]);
    pickle_code(pickle, "t");
}

void pickle_tensor(struct bytes *pickle, const struct torch_tensor *tensor)
{
    pickle_text(pickle, tensor->name);
    pickle_code(pickle, "ctorch._utils\n_rebuild_tensor_v2\n((");
    pickle_text(pickle, "storage");
    pickle_code(pickle, "ctorch\n");
    pickle_code(pickle, tensor->type);
    pickle_code(pickle, "\n");
    pickle_text(pickle, tensor->key);
    pickle_text(pickle, "cpu");
    pickle_number(pickle, tensor->elements);
    pickle_code(pickle, "tQ");
    pickle_number(pickle, tensor->offset);
    pickle_tuple(pickle, tensor->size, tensor->rank);
    pickle_tuple(pickle, tensor->stride, tensor->rank);
    pickle_code(pickle, "\x89" "ccollections\nOrderedDict\n)RtRs");
}

void archive_add(struct archive *archive, const char *name, const void *data, size_t bytes)
{
    uint32_t crc = deflated_crc(0, data, bytes);
    size_t header = archive->content.count, length = strlen(name);
    bytes_add(&archive->content, "PK\3\4\0\0\0\0\0\0\0\0\0\0", 14);
    for (int i = 0; i < 3; i++) bytes_number(&archive->content, i == 0 ? crc : bytes, 4);
    bytes_number(&archive->content, length, 2);
    bytes_number(&archive->content, 0, 2);
    bytes_add(&archive->content, name, length);
    bytes_add(&archive->content, data, bytes);
    bytes_add(&archive->list, "PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    for (int i = 0; i < 3; i++) bytes_number(&archive->list, i == 0 ? crc : bytes, 4);
    bytes_number(&archive->list, length, 2);
    bytes_add(&archive->list, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
    bytes_number(&archive->list, header, 4);
    bytes_add(&archive->list, name, length);
    archive->count++;
}

void archive_end(struct archive *archive)
{
    size_t at = archive->content.count;
    bytes_add(&archive->content, archive->list.data, archive->list.count);
    bytes_add(&archive->content, "PK\5\6\0\0\0\0", 8);
    for (int i = 0; i < 2; i++) bytes_number(&archive->content, (uint64_t)archive->count, 2);
    bytes_number(&archive->content, archive->list.count, 4);
    bytes_number(&archive->content, at, 4);
    bytes_number(&archive->content, 0, 2);
}

void archive_free(struct archive *archive)
{
    bytes_free(&archive->content);
    bytes_free(&archive->list);
}
