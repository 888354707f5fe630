#include "ini.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/memory.h"

#define FILE_LIMIT (16 << 20)
/* Room for a path of PATH_MAX bytes, each of them escaped. */
#define LINE_LIMIT 20000
#define SECTION_LIMIT 48
#define KEY_LIMIT 100
/* Each entry costs memory many times its length. */
#define ENTRY_LIMIT 200000
/* More of them would only be noise. */
#define MISTAKE_LIMIT 20

struct reader {
    struct ini *ini;
    const char *next, *end;      /* what is still unread */
    int line;
    bool lost;                   /* the section's own line was refused: nobody knows where its keys belong */
    char section[SECTION_LIMIT + 1];
    int mistakes;
};

/* A stretch of the text. */
struct slice {
    const char *start;
    size_t length;
};

static void ini_note(struct ini *ini, int line, char *why)
{
    *array_push(ini->mistakes, ini->mistake_count) = (struct ini_mistake){line, why};
}

static bool reader_refuse(struct reader *reader, const char *why)
{
    if (reader->mistakes++ < MISTAKE_LIMIT) ini_note(reader->ini, reader->line, text_copy(why));
    return false;
}

static struct slice slice_trim(struct slice slice)
{
    while (slice.length && isspace((unsigned char)*slice.start)) {
        slice.start++;
        slice.length--;
    }
    while (slice.length && isspace((unsigned char)slice.start[slice.length - 1])) slice.length--;
    return slice;
}

static char *slice_copy(struct slice slice)
{
    char *copy = memory_new(slice.length + 1, 1);
    return memcpy(copy, slice.start, slice.length);
}

/* Without the comment that a ';' begins after white space. */
static struct slice slice_uncomment(struct slice slice)
{
    for (size_t i = 1; i < slice.length; i++)
        if (slice.start[i] == ';' && isspace((unsigned char)slice.start[i - 1])) slice.length = i;
    return slice_trim(slice);
}

/* Takes ownership of the key and its value; both NULL for a section's own line. */
static void reader_push(struct reader *reader, char *key, char *value)
{
    struct ini_entry *entry = array_push(reader->ini->entries, reader->ini->count);
    *entry = (struct ini_entry){text_copy(reader->section), key, value, reader->line};
}

/* The next line as it stands in the file, without its end; false at the end of the text. */
static bool reader_raw_line(struct reader *reader, struct slice *line)
{
    if (reader->next == reader->end) return false;
    size_t left = (size_t)(reader->end - reader->next);
    const char *newline = memchr(reader->next, '\n', left);
    *line = (struct slice){reader->next, newline ? (size_t)(newline - reader->next) : left};
    reader->next += line->length + (newline != NULL);
    reader->line++;
    if (line->length && line->start[line->length - 1] == '\r') line->length--;
    if (reader->line == 1 && line->length >= 3 && memcmp(line->start, "\xef\xbb\xbf", 3) == 0)
        *line = (struct slice){line->start + 3, line->length - 3};
    return true;
}

static const char *line_fault(struct slice line)
{
    if (memchr(line.start, '\0', line.length)) return "a NUL byte: this is not a text file";
    if (line.length > LINE_LIMIT) return "the line is longer than 20,000 bytes";
    for (size_t i = 0; i < line.length; i++)
        if (iscntrl((unsigned char)line.start[i]) && line.start[i] != '\t')
            return "a control character: this is not a text file";
    return NULL;
}

/* "[section]"; false when the line is wrong. */
static bool reader_section(struct reader *reader, struct slice line)
{
    const char *close = memchr(line.start, ']', line.length);
    if (!close) return reader_refuse(reader, "']' is missing");
    struct slice name = {line.start + 1, (size_t)(close - line.start) - 1};
    struct slice rest = {close + 1, line.length - name.length - 2};
    /* A comment needs its white space, which the slice must still hold to be seen. */
    if (slice_uncomment(rest).length) return reader_refuse(reader, "nothing may follow ']'");
    name = slice_trim(name);
    if (name.length == 0) return reader_refuse(reader, "the section has no name");
    if (name.length > SECTION_LIMIT)
        return reader_refuse(reader, "the section's name is longer than 48 bytes");
    if (memchr(name.start, ';', name.length) || memchr(name.start, '[', name.length))
        return reader_refuse(reader, "the name of a section cannot contain ';' or '['");
    snprintf(reader->section, sizeof reader->section, "%.*s", (int)name.length, name.start);
    reader_push(reader, NULL, NULL);
    return true;
}

/* The digits of \xHH; -1: there are none. */
static int hex_byte(const char *at, const char *end)
{
    char digits[3] = {0};
    if (end - at < 2 || !isxdigit((unsigned char)at[0]) || !isxdigit((unsigned char)at[1])) return -1;
    memcpy(digits, at, 2);
    return (int)strtol(digits, NULL, 16);
}

/* The byte that an escape stands for, behind whose backslash `*at` is, which moves to its end; -1: none. */
static int escaped_byte(const char **at, const char *end)
{
    static const char letters[] = "\"\\tnr", bytes[] = "\"\\\t\n\r";
    const char *letter = *at < end ? memchr(letters, **at, sizeof letters - 1) : NULL;
    int byte = letter ? bytes[letter - letters] : -1;
    if (*at < end && **at == 'x') byte = hex_byte(*at + 1, end), *at += 2;
    ++*at;
    return byte > 0 ? byte : -1;
}

/* Reads a value from behind its first quotation mark; NULL, with the fault. */
static char *slice_unquote(struct slice slice, const char **fault)
{
    const char *at = slice.start + 1, *end = slice.start + slice.length;
    struct text value = {0};
    text_add(&value, "%s", "");
    while (at < end && *at != '"') {
        int byte = (unsigned char)*at++;
        if (byte == '\\' && (byte = escaped_byte(&at, end)) < 0) {
            *fault = "a backslash in quotation marks must be followed by one of \" \\ t n r, or by x and two "
                     "hexadecimal digits";
            text_free(&value);
            return NULL;
        }
        text_add(&value, "%c", byte);
    }
    *fault = at >= end ? "the closing quotation mark is missing" : NULL;
    if (!*fault && slice_uncomment((struct slice){at + 1, (size_t)(end - at) - 1}).length)
        *fault = "nothing may follow the closing quotation mark";
    if (!*fault) return value.data;
    text_free(&value);
    return NULL;
}

static char *slice_value(struct slice slice, const char **fault)
{
    struct slice trimmed = slice_trim(slice);
    if (trimmed.length && *trimmed.start == '"') return slice_unquote(trimmed, fault);
    *fault = NULL;
    return slice_copy(slice_uncomment(slice));
}

void ini_add_value(struct text *out, const char *value)
{
    size_t length = strlen(value);
    bool plain = length == 0 || (*value != '"' && !isspace((unsigned char)*value) &&
                                 !isspace((unsigned char)value[length - 1]) && !strchr(value, ';'));
    for (const char *at = value; plain && *at; at++) plain = !iscntrl((unsigned char)*at);
    if (plain) {
        text_add(out, "%s", value);
        return;
    }
    text_add(out, "\"");
    for (; *value; value++) {
        bool marked = *value == '"' || *value == '\\', control = iscntrl((unsigned char)*value);
        text_add(out, control ? "\\x%02x" : marked ? "\\%c" : "%c", (unsigned char)*value);
    }
    text_add(out, "\"");
}

static const char *key_fault(const struct reader *reader, struct slice key)
{
    if (key.length == 0) return "there is no key before '='";
    if (key.length > KEY_LIMIT) return "the key is longer than 100 bytes";
    for (size_t i = 0; i < key.length; i++)
        if (isspace((unsigned char)key.start[i]) || strchr(":;[]#", key.start[i]))
            return "a key must be one word, without : ; [ ] #";
    if (!reader->section[0]) return "this key is not in a [section]";
    return NULL;
}

/* "key = value"; false when the line is wrong. */
static bool reader_key(struct reader *reader, struct slice line)
{
    const char *equals = memchr(line.start, '=', line.length);
    if (!equals) return reader_refuse(reader, "not a [section], key = value or comment");
    struct slice key = slice_trim((struct slice){line.start, (size_t)(equals - line.start)});
    const char *fault = key_fault(reader, key);
    if (fault) return reader_refuse(reader, fault);
    struct slice value = {equals + 1, line.length - (size_t)(equals + 1 - line.start)};
    char *read = slice_value(value, &fault);
    if (!read) return reader_refuse(reader, fault);
    reader_push(reader, slice_copy(key), read);
    return true;
}

/* Reads all lines; what is wrong in them is noted. */
static void reader_read(struct reader *reader)
{
    struct slice line;
    while (reader_raw_line(reader, &line)) {
        if (reader->ini->count == ENTRY_LIMIT) {
            reader_refuse(reader, "the file has more than 200,000 sections and keys");
            return;
        }
        const char *fault = line_fault(line);
        if (fault) {
            reader_refuse(reader, fault);
            /* More of what is not text at all would only be noise. */
            if (line.length <= LINE_LIMIT) return;
            continue;
        }
        line = slice_trim(line);
        if (line.length == 0 || *line.start == ';' || *line.start == '#') continue;
        if (*line.start == '[') reader->lost = !reader_section(reader, line);
        else if (!reader->lost) reader_key(reader, line);
    }
}

static int entry_compare(const void *a, const void *b)
{
    const struct ini_entry *left = *(const struct ini_entry *const *)a;
    const struct ini_entry *right = *(const struct ini_entry *const *)b;
    int order = strcmp(left->section, right->section);
    if (order == 0) order = strcmp(left->key, right->key);
    return order ? order : (left->line > right->line) - (left->line < right->line);
}

/* Notes every key that stands twice in a section. */
static void ini_note_doubles(struct ini *ini)
{
    const struct ini_entry **sorted = memory_new((size_t)ini->count, sizeof *sorted);
    int count = 0, doubles = 0;
    for (int i = 0; i < ini->count; i++)
        if (ini->entries[i].key) sorted[count++] = &ini->entries[i];
    qsort(sorted, (size_t)count, sizeof *sorted, entry_compare);
    for (int i = 1; i < count; i++) {
        const struct ini_entry *before = sorted[i - 1], *entry = sorted[i];
        if (strcmp(before->section, entry->section) != 0 || strcmp(before->key, entry->key) != 0) continue;
        if (doubles++ < MISTAKE_LIMIT)
            ini_note(ini, entry->line, text_format("duplicate key '%s' in [%s]; first set in line %d",
                                                   entry->key, entry->section, before->line));
    }
    free(sorted);
}

static int mistake_compare(const void *a, const void *b)
{
    const struct ini_mistake *left = a, *right = b;
    return (left->line > right->line) - (left->line < right->line);
}

static void ini_scan_bytes(const char *name, const char *bytes, size_t length, struct ini *ini)
{
    *ini = (struct ini){.file = text_copy(name)};
    struct reader reader = {.ini = ini, .next = bytes, .end = bytes + length};
    reader_read(&reader);
    ini->more = reader.mistakes - MISTAKE_LIMIT;
    ini_note_doubles(ini);
    if (ini->mistake_count > 0)
        qsort(ini->mistakes, (size_t)ini->mistake_count, sizeof *ini->mistakes, mistake_compare);
}

enum status ini_report(struct ini *ini, int line)
{
    for (; ini->reported < ini->mistake_count && ini->mistakes[ini->reported].line < line; ini->reported++)
        fail(USAGE, "%s:%d: %s", ini->file, ini->mistakes[ini->reported].line,
             ini->mistakes[ini->reported].why);
    if (line == INI_END && ini->more > 0) fail(USAGE, "%s: %d more errors", ini->file, ini->more);
    return ini->mistake_count > 0 ? USAGE : OK;
}

/* For callers that take it only as a whole. */
static enum status ini_keep(struct ini *scanned, struct ini *ini)
{
    enum status status = ini_report(scanned, INI_END);
    if (status == OK) *ini = *scanned;
    else ini_free(scanned);
    return status;
}

void ini_scan_text(const char *name, const char *text, struct ini *ini)
{
    ini_scan_bytes(name, text, strlen(text), ini);
}

enum status ini_read_text(const char *name, const char *text, struct ini *ini)
{
    struct ini scanned;
    ini_scan_text(name, text, &scanned);
    return ini_keep(&scanned, ini);
}

enum status ini_read(const char *path, struct ini *ini)
{
    struct ini scanned;
    TRY(ini_scan(path, &scanned));
    return ini_keep(&scanned, ini);
}

enum status ini_scan(const char *path, struct ini *ini)
{
    struct reason reason;
    FILE *file = directory_stream(&directory_working, path, "r", &reason);
    if (!file) return fail(USAGE, "cannot read %s: %s", path, reason.text);
    char *bytes = NULL;
    size_t length = 0, got;
    do {
        bytes = memory_resize(bytes, length + 65536, 1);
        got = fread(bytes + length, 1, 65536, file);
        length += got;
    } while (got > 0 && length <= FILE_LIMIT);
    enum status status = OK;
    if (ferror(file)) status = fail(USAGE, "cannot read %s: %s", path, strerror(errno));
    else if (length > FILE_LIMIT) status = fail(USAGE, "%s: too large to be a configuration", path);
    else ini_scan_bytes(path, bytes, length, ini);
    fclose(file);
    free(bytes);
    return status;
}

void ini_free(struct ini *ini)
{
    for (int i = 0; i < ini->count; i++) {
        free(ini->entries[i].section);
        free(ini->entries[i].key);
        free(ini->entries[i].value);
    }
    for (int i = 0; i < ini->mistake_count; i++) free(ini->mistakes[i].why);
    free(ini->mistakes);
    free(ini->entries);
    free(ini->file);
    *ini = (struct ini){0};
}
