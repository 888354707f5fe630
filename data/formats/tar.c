#include "data/formats/tar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/file.h"
#include "base/memory.h"

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

/* Empty blocks in a row; writers fill up some ten thousand bytes, and more is a file that is a hole. */
#define EMPTY_BLOCKS_MAX 65536

/* Extended headers take some hundred bytes; more than this is an attack. */
#define ABOUT_BYTES_MAX ((size_t)1 << 20)

/* Octal digits between blanks, or GNU's numbers of base 256, which begin with 0x80 (0xff: negative). */
static bool read_number(const uint8_t *field, int count, uint64_t *number)
{
    uint64_t value = 0;
    int i = 0;
    if (field[0] & 0x80) {
        if (field[0] & 0x40) return false;
        for (value = field[i++] & 0x3f; i < count && value >> 56 == 0; i++) value = value << 8 | field[i];
        *number = value;
        return i == count;
    }
    while (i < count && field[i] == ' ') i++;
    for (; i < count && field[i] >= '0' && field[i] <= '7'; i++) value = value * 8 + field[i] - '0';
    *number = value;
    return i == count || field[i] == ' ' || field[i] == '\0';
}

/* The sum of all bytes, those of the sum itself counted as spaces. */
static bool sum_is_right(const uint8_t *header)
{
    uint64_t sum = 0, said;
    for (int i = 0; i < TAR_BLOCK; i++) sum += i >= SUM_AT && i < SUM_AT + SUM_BYTES ? ' ' : header[i];
    return read_number(header + SUM_AT, SUM_BYTES, &said) && sum == said;
}

static bool is_empty(const uint8_t *header)
{
    for (int i = 0; i < TAR_BLOCK; i++)
        if (header[i]) return false;
    return true;
}

/* Attributes from the headers before a member's own. */
struct about {
    char name[TAR_NAME];       /* "": its header has the name */
    bool sized, sparse;
    uint64_t bytes;            /* if `sized` */
};

/* GNU's older header has other fields where ustar has the first part of a path. */
static void name_of(const uint8_t *header, const struct about *about, char name[TAR_NAME])
{
    const char *text = (const char *)header;
    bool posix = header[MAGIC_AT + 5] == '\0';
    int prefix = posix ? (int)strnlen(text + PREFIX_AT, PREFIX_BYTES) : 0;
    int length = (int)strnlen(text, NAME_BYTES);
    if (about->name[0])
        memcpy(name, about->name, TAR_NAME);
    else
        snprintf(name, TAR_NAME, "%.*s%s%.*s", prefix, text + PREFIX_AT, prefix ? "/" : "", length, text);
}

static bool keep_name(const char *name, size_t length, struct about *about, struct reason *reason)
{
    if (length >= TAR_NAME)
        return because(reason, "a name of %zu bytes in the tar archive; the maximum is %d", length,
                       TAR_NAME - 1);
    memcpy(about->name, name, length);
    about->name[length] = '\0';
    return true;
}

static bool keep_size(const char *digits, size_t count, struct about *about, struct reason *reason)
{
    about->bytes = 0;
    about->sized = count > 0;
    for (size_t i = 0; i < count; i++)
        if (digits[i] < '0' || digits[i] > '9' || about->bytes > (UINT64_MAX - 9) / 10)
            return because(reason, "a pax header has an invalid size");
        else
            about->bytes = about->bytes * 10 + (uint64_t)(digits[i] - '0');
    return true;
}

static bool has_key(const char *record, size_t key, const char *name)
{
    return key == strlen(name) && memcmp(record, name, key) == 0;
}

/* "KEY=VALUE"; an empty value says that the header's own holds. */
static bool keep_record(const char *record, size_t count, struct about *about, struct reason *reason)
{
    const char *equals = memchr(record, '=', count);
    if (!equals) return because(reason, "a pax header is damaged");
    size_t key = (size_t)(equals - record), length = count - key - 1;
    if (key > 11 && memcmp(record, "GNU.sparse.", 11) == 0) about->sparse = true;
    if (has_key(record, key, "path") || has_key(record, key, "GNU.sparse.name"))
        return keep_name(equals + 1, length, about, reason);
    return !has_key(record, key, "size") || keep_size(equals + 1, length, about, reason);
}

/* A pax header's records are "LENGTH KEY=VALUE\n". */
static bool read_records(const char *text, size_t count, struct about *about, struct reason *reason)
{
    for (size_t at = 0, length; at < count; at += length) {
        size_t key = at;
        for (length = 0; key < count && text[key] >= '0' && text[key] <= '9' && length < count; key++)
            length = length * 10 + (size_t)(text[key] - '0');
        if (length > count - at || key + 2 > at + length || text[key] != ' ' || text[at + length - 1] != '\n')
            return because(reason, "a pax header is damaged");
        if (!keep_record(text + key + 1, at + length - key - 2, about, reason)) return false;
    }
    return true;
}

static bool read_at(const struct tar *tar, size_t at, void *to, size_t count, struct reason *reason)
{
    ssize_t got = file_read(tar->file, to, count, (int64_t)at);
    if (got < 0) return because(reason, "%s", strerror(errno));
    return (size_t)got == count || because(reason, "truncated while it was read");
}

/* Reads a header of type 'L', 'x' or 'g', which lies where `member` says. */
static bool read_about(const struct tar *tar, const struct tar_member *member, char type, struct about *about,
                       struct reason *reason)
{
    size_t count = member->bytes;
    struct about all = {.bytes = 0};
    char *text = count <= ABOUT_BYTES_MAX ? memory_try(count + 1, 1) : NULL;
    if (!text) return because(reason, "a tar header of %zu bytes is too long", count);
    bool good = read_at(tar, member->at, text, count, reason);
    if (good && type == 'L')
        good = keep_name(text, strnlen(text, count), about, reason);
    else if (good)
        good = read_records(text, count, type == 'g' ? &all : about, reason);
    if (good && (all.name[0] || all.sized || all.sparse))
        good = because(reason, "a global pax header sets a name or size");
    free(text);
    return good;
}

/* Links, devices and folders have no content, whatever their size says. */
static bool has_content(char type) { return type < '1' || type > '6'; }

/* Reads the content of a header, and skips both. */
static bool tar_step(struct tar *tar, const uint8_t *header, const struct about *about,
                     struct tar_member *member, struct reason *reason)
{
    uint64_t bytes = about->bytes;
    if (!about->sized && !read_number(header + SIZE_AT, SIZE_BYTES, &bytes))
        return because(reason, "the tar header at byte %zu has an invalid size", tar->at);
    if (!has_content((char)header[TYPE_AT])) bytes = 0;
    member->at = tar->at + TAR_BLOCK;
    size_t rest = tar->count - member->at;
    if (bytes > rest || align_up(bytes, TAR_BLOCK) > rest)
        return because(reason, "truncated in the tar member at byte %zu", tar->at);
    member->bytes = (size_t)bytes;
    tar->at = member->at + align_up(member->bytes, TAR_BLOCK);
    return true;
}

/* Empty blocks end an archive, but another may follow in concatenated archives. */
bool tar_next(struct tar *tar, struct tar_member *member, bool *more, struct reason *reason)
{
    static const struct about none;
    struct about about = none;
    uint8_t header[TAR_BLOCK];
    int empty = 0;
    for (*more = false; !*more && tar->count - tar->at >= TAR_BLOCK;) {
        if (!read_at(tar, tar->at, header, TAR_BLOCK, reason)) return false;
        if (is_empty(header)) {
            if (++empty > EMPTY_BLOCKS_MAX)
                return because(reason, "more than %d MiB of zeros before byte %zu of the tar archive",
                               EMPTY_BLOCKS_MAX / 2048, tar->at);
            tar->at += TAR_BLOCK;
            continue;
        }
        empty = 0;
        char type = (char)header[TYPE_AT];
        bool describes = type && strchr("xLgK", type);
        if (!sum_is_right(header)) return because(reason, "the tar header at byte %zu is damaged", tar->at);
        if (!tar_step(tar, header, describes ? &none : &about, member, reason)) return false;
        if (describes) {
            if (type != 'K' && !read_about(tar, member, type, &about, reason)) return false;
            continue;
        }
        name_of(header, &about, member->name);
        if (about.sparse || type == 'S')
            return because(reason, "%.100s is a sparse file, which is not supported",
                           member->name);
        *more = type == '0' || type == '\0' || type == '7';
        about = none;
    }
    return true;
}
