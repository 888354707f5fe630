#include "data/tar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Fields of a header block. */
#define NAME_BYTES 100
#define SIZE_AT 124
#define SIZE_BYTES 12
#define SUM_AT 148
#define SUM_BYTES 8
#define TYPE_AT 156
#define MAGIC_AT 257
#define PREFIX_AT 345
#define PREFIX_BYTES 155

/* What is looked at of a header that only names the next one. */
#define NAMING_BYTES (1 << 16)

bool tar_sniff(const uint8_t *bytes, size_t count)
{
    return count >= TAR_BLOCK && memcmp(bytes + MAGIC_AT, "ustar", 5) == 0;
}

/* Octal digits, or GNU's binary numbers, which begin with 0x80. */
static uint64_t number_at(const uint8_t *field, int count)
{
    uint64_t value = 0;
    if (field[0] & 0x80) {
        for (int i = 1; i < count; i++) value = value << 8 | field[i];
        return value;
    }
    for (int i = 0; i < count; i++)
        if (field[i] >= '0' && field[i] <= '7') value = value * 8 + field[i] - '0';
    return value;
}

/* The sum of all bytes, those of the sum itself counted as spaces. */
static bool sum_is_right(const uint8_t *header)
{
    uint64_t sum = 0;
    for (int i = 0; i < TAR_BLOCK; i++) sum += i >= SUM_AT && i < SUM_AT + SUM_BYTES ? ' ' : header[i];
    return sum == number_at(header + SUM_AT, SUM_BYTES);
}

static bool is_empty(const uint8_t *header)
{
    for (int i = 0; i < TAR_BLOCK; i++)
        if (header[i]) return false;
    return true;
}

static void name_of(const uint8_t *header, char name[TAR_NAME])
{
    int prefix = (int)strnlen((const char *)header + PREFIX_AT, PREFIX_BYTES);
    int length = (int)strnlen((const char *)header, NAME_BYTES);
    const char *text = (const char *)header;
    snprintf(name, TAR_NAME, "%.*s%s%.*s", prefix, text + PREFIX_AT, prefix ? "/" : "", length, text);
}

/* A pax header's records are "LENGTH KEY=VALUE\n". */
static void long_name_of_pax(const uint8_t *bytes, size_t count, char name[TAR_NAME])
{
    for (size_t at = 0; at < count;) {
        size_t length = 0, key = at;
        while (key < count && bytes[key] >= '0' && bytes[key] <= '9' && length < count)
            length = length * 10 + bytes[key++] - '0';
        if (length <= key - at + 1 || length > count - at) return;
        if (length - (key - at) > 6 && memcmp(bytes + key, " path=", 6) == 0)
            snprintf(name, TAR_NAME, "%.*s", (int)(length - (key - at) - 7), (const char *)bytes + key + 6);
        at += length;
    }
}

static bool read_at(const struct tar *tar, size_t at, void *to, size_t count, struct reason *reason)
{
    ssize_t got = file_read(tar->file, to, count, (int64_t)at);
    if (got < 0) return because(reason, "%s", strerror(errno));
    return (size_t)got == count || because(reason, "truncated: it became shorter while it was read");
}

/* Steps over a header and its content; *type is what it says it is. */
static bool step(struct tar *tar, const uint8_t *header, struct tar_member *member, char *type,
                 struct reason *reason)
{
    if (!sum_is_right(header)) return because(reason, "the tar header at byte %zu is garbled", tar->at);
    uint64_t bytes = number_at(header + SIZE_AT, SIZE_BYTES);
    member->at = tar->at + TAR_BLOCK;
    size_t rest = tar->count - member->at;
    if (bytes > rest || (bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK > rest)
        return because(reason, "truncated in the tar member at byte %zu", tar->at);
    member->bytes = (size_t)bytes;
    tar->at = member->at + (member->bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    *type = (char)header[TYPE_AT];
    if (*type == '0' || *type == '\0') name_of(header, member->name);
    return true;
}

/* The name that a member of type 'L' or 'x' gives the next one. */
static bool read_name(const struct tar *tar, const struct tar_member *member, char type, char name[TAR_NAME],
                      struct reason *reason)
{
    uint8_t content[NAMING_BYTES];
    size_t count = member->bytes < sizeof content ? member->bytes : sizeof content;
    if (!read_at(tar, member->at, content, count, reason)) return false;
    if (type == 'x')
        long_name_of_pax(content, count, name);
    else
        snprintf(name, TAR_NAME, "%.*s", (int)count, (const char *)content);
    return true;
}

bool tar_next(struct tar *tar, struct tar_member *member, bool *more, struct reason *reason)
{
    char long_name[TAR_NAME] = "", type = 0;
    uint8_t header[TAR_BLOCK];
    *more = false;
    while (tar->count - tar->at >= TAR_BLOCK) {
        if (!read_at(tar, tar->at, header, TAR_BLOCK, reason)) return false;
        if (is_empty(header)) break;
        if (!step(tar, header, member, &type, reason)) return false;
        if (type == 'L' || type == 'x') {
            if (!read_name(tar, member, type, long_name, reason)) return false;
        } else if (type == '0' || type == '\0') {
            if (long_name[0]) memcpy(member->name, long_name, TAR_NAME);
            *more = true;
            return true;
        } else {
            long_name[0] = '\0';
        }
    }
    return true;
}
