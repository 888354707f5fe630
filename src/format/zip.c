#include "format/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/deflated.h"
#include "base/file.h"
#include "base/memory.h"

/* Bytes of the records of the format without their variable parts. */
#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define CENTRAL_BYTES 46
#define LOCAL_BYTES 30
#define COMMENT_MAX 65535

static uint64_t number(const uint8_t *bytes, int count)
{
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

static bool read_at(const struct zip *zip, int64_t at, void *to, int64_t bytes, struct reason *reason)
{
    ssize_t got = file_read(zip->file, to, (size_t)bytes, at);
    if (got < 0) return because_errno(reason, "cannot be read");
    return got == bytes || because(reason, "ends too early");
}

/* The central directory: the list of members at the end of the file. */
struct central {
    uint64_t at, bytes, count;
};

/* Sizes that do not fit into the record are in another one, which a locator before it points to. */
static bool read_end64(const struct zip *zip, int64_t end, struct central *central, struct reason *reason)
{
    uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
    if (end < LOCATOR_BYTES) return true;
    if (!read_at(zip, end - LOCATOR_BYTES, locator, LOCATOR_BYTES, reason)) return false;
    if (memcmp(locator, "PK\6\7", 4) != 0) return true;
    uint64_t at = number(locator + 8, 8);
    if (at > (uint64_t)end || (uint64_t)end - at < END64_BYTES)
        return because(reason, "has a damaged end of its zip archive");
    if (!read_at(zip, (int64_t)at, record, END64_BYTES, reason)) return false;
    if (memcmp(record, "PK\6\6", 4) != 0) return because(reason, "has a damaged end of its zip archive");
    *central = (struct central){number(record + 48, 8), number(record + 40, 8), number(record + 32, 8)};
    return true;
}

static bool find_central(const struct zip *zip, int64_t size, struct central *central, struct reason *reason)
{
    int64_t bytes = size < END_BYTES + COMMENT_MAX ? size : END_BYTES + COMMENT_MAX;
    uint8_t *tail = memory_new((size_t)bytes + 1, 1);
    int64_t at = bytes - END_BYTES;
    bool good = read_at(zip, size - bytes, tail, bytes, reason);
    while (good && at >= 0 && (memcmp(tail + at, "PK\5\6", 4) != 0 ||
                               (int64_t)number(tail + at + 20, 2) != bytes - at - END_BYTES))
        at--;
    if (good && at < 0) good = because(reason, "is truncated: it has no end of a zip archive");
    if (good) {
        const uint8_t *end = tail + at;
        *central = (struct central){number(end + 16, 4), number(end + 12, 4), number(end + 10, 2)};
        good = read_end64(zip, size - bytes + at, central, reason);
    }
    free(tail);
    if (!good) return false;
    if (central->at > (uint64_t)size || central->bytes > (uint64_t)size - central->at)
        return because(reason, "is truncated: its list of members lies outside of the file");
    return central->count <= ZIP_MEMBERS_MAX ||
           because(reason, "has more than %d members", ZIP_MEMBERS_MAX);
}

/* Replaces numbers of 32 bits that say so by those of 64 bits in the extra field, in this order. */
static bool read_extra(const uint8_t *extra, size_t bytes, uint64_t *const values[3])
{
    for (size_t at = 0; at + 4 <= bytes;) {
        size_t id = number(extra + at, 2), length = number(extra + at + 2, 2), from = at + 4;
        if (length > bytes - from) return false;
        at = from + length;
        for (int i = 0; id == 1 && i < 3; i++) {
            if (*values[i] != UINT32_MAX) continue;
            if (at - from < 8) return false;
            *values[i] = number(extra + from, 8);
            from += 8;
        }
    }
    return true;
}

/* The content comes after a header of its own, whose name and extra field may have other lengths. */
static bool locate(const struct zip *zip, uint64_t header, int64_t size, struct zip_member *member,
                   struct reason *reason)
{
    uint8_t local[LOCAL_BYTES];
    if (header > (uint64_t)size || (uint64_t)size - header < LOCAL_BYTES)
        return because(reason, "lies outside of the file");
    if (!read_at(zip, (int64_t)header, local, LOCAL_BYTES, reason)) return false;
    if (memcmp(local, "PK\3\4", 4) != 0) return because(reason, "has a damaged header");
    member->at = (int64_t)header + LOCAL_BYTES + (int64_t)(number(local + 26, 2) + number(local + 28, 2));
    return (member->at <= size && member->bytes <= size - member->at) ||
           because(reason, "lies outside of the file");
}

/* One member of the list. `used`: its bytes there. */
static bool read_member(struct zip *zip, const uint8_t *record, size_t room, int64_t size, size_t *used,
                        struct reason *reason)
{
    if (room < CENTRAL_BYTES || memcmp(record, "PK\1\2", 4) != 0)
        return because(reason, "has a damaged list of members");
    size_t name = number(record + 28, 2), extra = number(record + 30, 2);
    *used = CENTRAL_BYTES + name + extra + number(record + 32, 2);
    if (*used > room) return because(reason, "has a damaged list of members");
    uint64_t bytes = number(record + 24, 4), packed = number(record + 20, 4), header = number(record + 42, 4);
    uint64_t *const values[3] = {&bytes, &packed, &header};
    const uint8_t *text = record + CENTRAL_BYTES;
    if (memchr(text, '\0', name) || !read_extra(text + name, extra, values) || packed > (uint64_t)size)
        return because(reason, "has a damaged list of members");
    struct zip_member *member = &zip->members[zip->count++];
    *member = (struct zip_member){.name = text_format("%.*s", (int)name, (const char *)text),
                                  .bytes = (int64_t)packed, .crc = (uint32_t)number(record + 16, 4),
                                  .method = (int)number(record + 10, 2)};
    struct reason why;
    if (number(record + 8, 2) & 1) return because(reason, "member '%.100s' is encrypted", member->name);
    if (member->method == 0 && bytes != packed) return because(reason, "has a damaged list of members");
    return locate(zip, header, size, member, &why) ||
           because(reason, "member '%.100s' %.100s", member->name, why.text);
}

static bool read_members(struct zip *zip, const struct central *central, const uint8_t *list, int64_t size,
                         struct reason *reason)
{
    size_t at = 0, used = 0;
    for (uint64_t i = 0; i < central->count; i++, at += used)
        if (!read_member(zip, list + at, central->bytes - at, size, &used, reason)) return false;
    if (zip->count > 0) qsort(zip->members, (size_t)zip->count, sizeof *zip->members, text_compare);
    for (int i = 1; i < zip->count; i++)
        if (strcmp(zip->members[i].name, zip->members[i - 1].name) == 0)
            return because(reason, "has two members '%.100s'", zip->members[i].name);
    return true;
}

bool zip_open(int file, int64_t size, struct zip *zip, struct reason *reason)
{
    struct zip opened = {.file = file};
    struct central central;
    if (!find_central(&opened, size, &central, reason)) return false;
    if (central.count > central.bytes / CENTRAL_BYTES)
        return because(reason, "has a damaged list of members");
    uint8_t *list = memory_try(central.bytes + 1, 1);
    opened.members = memory_try(central.count + 1, sizeof *opened.members);
    bool good = (list && opened.members) || because(reason, "needs more memory than is available");
    good = good && read_at(&opened, (int64_t)central.at, list, (int64_t)central.bytes, reason) &&
           read_members(&opened, &central, list, size, reason);
    free(list);
    if (good) *zip = opened;
    else zip_close(&opened);
    return good;
}

void zip_close(struct zip *zip)
{
    for (int i = 0; i < zip->count; i++) free(zip->members[i].name);
    free(zip->members);
    *zip = (struct zip){.file = -1};
}

int zip_find(const struct zip *zip, const char *name)
{
    if (zip->count == 0) return -1;
    const struct zip_member key = {.name = (char *)name};
    const struct zip_member *found =
        bsearch(&key, zip->members, (size_t)zip->count, sizeof key, text_compare);
    return found ? (int)(found - zip->members) : -1;
}

static bool check_content(const struct zip *zip, const struct zip_member *member, struct reason *reason)
{
    int64_t piece = 1 << 20;
    uint8_t *data = memory_new((size_t)(member->bytes < piece ? member->bytes : piece) + 1, 1);
    uint32_t crc = 0;
    bool good = true;
    for (int64_t at = 0; good && at < member->bytes; at += piece) {
        int64_t part = member->bytes - at < piece ? member->bytes - at : piece;
        good = read_at(zip, member->at + at, data, part, reason);
        crc = deflated_crc(crc, data, (size_t)part);
    }
    free(data);
    return good && (crc == member->crc ||
                    because(reason, "member '%.100s' is damaged (CRC-32 %08" PRIx32 ", not %08" PRIx32 ")",
                            member->name, crc, member->crc));
}

bool zip_read(const struct zip *zip, int member, int64_t from, void *to, int64_t bytes, struct reason *reason)
{
    struct zip_member *read = &zip->members[member];
    if (read->method != 0)
        return because(reason, "member '%.100s' is compressed, which PyTorch's own files are not",
                       read->name);
    if (!read->verified && !check_content(zip, read, reason)) return false;
    read->verified = true;
    return read_at(zip, read->at + from, to, bytes, reason);
}
