#include "tests/support/torch_case.h"

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

/* Numbers that large archives have elsewhere, since 32 bits may not hold them. */
static void list_number(struct archive *archive, uint64_t value, int count)
{
    bytes_number(&archive->list, archive->large ? UINT64_MAX : value, count);
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
    bytes_number(&archive->list, crc, 4);
    for (int i = 0; i < 2; i++) list_number(archive, bytes, 4);
    bytes_number(&archive->list, length, 2);
    bytes_number(&archive->list, archive->large ? 33 : 0, 2);
    bytes_add(&archive->list, "\0\0\0\0\0\0\0\0\0\0", 10);
    list_number(archive, header, 4);
    bytes_add(&archive->list, name, length);
    if (archive->large) {
        bytes_add(&archive->list, "\2\0\1\0x\1\0\x18\0", 9);         /* another program's field before it */
        for (int i = 0; i < 3; i++) bytes_number(&archive->list, i == 2 ? header : bytes, 8);
    }
    archive->count++;
}

/* The end of an archive of more than 4 GiB: where it is comes before the usual one. */
static void end_large(struct archive *archive, size_t at)
{
    size_t end = archive->content.count;
    bytes_add(&archive->content, "PK\6\6\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0\0\0\0\0\0\0\0\0", 24);
    for (int i = 0; i < 2; i++) bytes_number(&archive->content, (uint64_t)archive->count, 8);
    bytes_number(&archive->content, archive->list.count, 8);
    bytes_number(&archive->content, at, 8);
    bytes_add(&archive->content, "PK\6\7\0\0\0\0", 8);
    bytes_number(&archive->content, end, 8);
    bytes_number(&archive->content, 1, 4);
}

void archive_end(struct archive *archive)
{
    size_t at = archive->content.count;
    bool large = archive->large;
    bytes_add(&archive->content, archive->list.data, archive->list.count);
    if (large) end_large(archive, at);
    bytes_add(&archive->content, "PK\5\6\0\0\0\0", 8);
    for (int i = 0; i < 2; i++)
        bytes_number(&archive->content, large ? UINT64_MAX : (uint64_t)archive->count, 2);
    bytes_number(&archive->content, large ? UINT64_MAX : archive->list.count, 4);
    bytes_number(&archive->content, large ? UINT64_MAX : at, 4);
    bytes_number(&archive->content, 0, 2);
}

void archive_free(struct archive *archive)
{
    bytes_free(&archive->content);
    bytes_free(&archive->list);
}
