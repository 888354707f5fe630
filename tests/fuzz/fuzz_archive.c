/* Tar archives by their parts: the input is a script of members, of GNU's long names and of pax records. The
 * headers' sums are right but for a few. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "fuzz_images.h"

#define BLOCK 512
#define MEMBERS_MAX 12
#define CONTENT_MAX 6000
#define ROOM (MEMBERS_MAX * (BLOCK + CONTENT_MAX + BLOCK))

struct archive {
    uint8_t bytes[ROOM];
    size_t count;
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

/* Keys and extensions that may make samples; some names are too long for a header, and some for all. */
static void add_name(struct fuzz_script *script, struct text *text)
{
    static const char *const keys[] = {"a", "b", "d/a", "a.b/c", "./a", "", "d/"};
    static const char *const ends[] = {".png", ".cls", ".JPG", ".CLS", ".seg.png", ".jpeg", "", ".txt"};
    uint8_t kind = fuzz_byte(script);
    if (kind >= 0xe0) text_add(text, "%0*d", kind >= 0xf8 ? 4096 - kind % 8 + 4 : 60 + kind % 32 * 8, 0);
    text_add(text, "%s%s", keys[kind % 7], ends[fuzz_byte(script) % 8]);
}

/* "LENGTH KEY=VALUE\n", as a rule of the right length. */
static void add_record(struct fuzz_script *script, struct text *text)
{
    static const char *const keys[] = {"path", "size", "GNU.sparse.major", "GNU.sparse.name", "mtime", "",
                                       "p"};
    const char *key = keys[fuzz_byte(script) % 7];
    struct text value = {0};
    text_add(&value, "%s", "");
    if (strcmp(key, "size") == 0)
        text_add(&value, "%llu", (unsigned long long)fuzz_number(script, 8));
    else if (fuzz_byte(script) < 0xf0)
        add_name(script, &value);
    size_t rest = strlen(key) + strlen(value.data) + 3, length = rest + 1;
    for (size_t tens = 10; length >= tens; tens *= 10) length++;
    text_add(text, "%llu %s%s%s\n", (unsigned long long)fuzz_number(script, length), key,
             fuzz_byte(script) < 0xf8 ? "=" : "", value.data);
    text_free(&value);
}

static void add_content(struct fuzz_script *script, char type, struct text *text)
{
    text_add(text, "%s", "");
    if (type == 'x' || type == 'g')
        for (int i = 1 + fuzz_byte(script) % 3; i > 0; i--) add_record(script, text);
    else if (type == 'L' || type == 'K')
        add_name(script, text);
    else if (fuzz_byte(script) % 2)
        text_add(text, "%u\n", fuzz_byte(script) % 20);
    else
        text_add(text, "\x89PNG\r\n");
}

/* In octal digits, or of base 256. */
static void put_size(uint8_t *field, uint64_t size, bool binary)
{
    if (!binary && size < UINT64_C(1) << 33) {
        snprintf((char *)field, 12, "%011llo", (unsigned long long)size);
        return;
    }
    field[0] = 0x80;
    for (int i = 11; i > 3; i--, size >>= 8) field[i] = (uint8_t)size;
}

static void put_sum(uint8_t *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

static void put_member(struct fuzz_script *script, struct archive *archive)
{
    static const char types[] = "00000000xxxxLLLgK12S57";
    uint8_t *header = archive->bytes + archive->count;
    char type = types[fuzz_byte(script) % sizeof types];
    struct text name = {0}, content = {0};
    add_name(script, &name);
    add_content(script, type, &content);
    size_t count = strlen(content.data);
    if (count > CONTENT_MAX) count = CONTENT_MAX;
    strncpy((char *)header, name.data, 100);
    uint8_t odd = fuzz_byte(script);
    put_size(header + 124, fuzz_number(script, count), odd & 1);
    if (odd >= 0xf0) header[124 + odd % 12] = fuzz_byte(script);
    header[156] = (uint8_t)type;
    memcpy(header + 257, odd & 2 ? "ustar  " : "ustar\00000", 8);
    if (odd & 4) memcpy(header + 345, "d", 1);
    if (odd < 0xfe) put_sum(header);
    memcpy(header + BLOCK, content.data, count);
    archive->count += BLOCK + (count + BLOCK - 1) / BLOCK * BLOCK;
    text_free(&name);
    text_free(&content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_script script = {data, data + size};
    struct archive *archive = memory_new(1, sizeof *archive);
    for (int i = 1 + fuzz_byte(&script) % MEMBERS_MAX; i > 0; i--) {
        if (fuzz_byte(&script) >= 0xf0) archive->count += BLOCK;
        if (archive->count < ROOM - 2 * BLOCK - CONTENT_MAX) put_member(&script, archive);
    }
    size_t count = fuzz_number(&script, archive->count) % (archive->count + 2 * BLOCK + 1);
    if (count > ROOM) count = ROOM;
    const struct dataset_options options = {.path = fuzz_write("fuzz.tar", archive->bytes, count)};
    fuzz_dataset("packed", &options, "fuzz.tar");
    free(archive);
    return 0;
}
