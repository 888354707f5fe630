#include "ini.h"

#include <ctype.h>
#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/memory.h"
#include "conf/ini_parts.h"

#define FILE_LIMIT (16 << 20)
/* Room for a path of PATH_MAX bytes, each of them escaped. */
#define VALUE_LIMIT 20000
#define SECTION_LIMIT 48
#define KEY_LIMIT 100
/* Each entry costs memory many times its length. */
#define ENTRY_LIMIT 200000
#define BLANKS " \t"

/* inih reports sections, keys and values, but neither their lines nor a section without keys; it cuts what
 * is too long, and ignores what follows a ']'. So it gets its lines from reader_next, which counts them,
 * notes those of sections, and hands over an empty line in the place of one that it refuses. */
struct reader {
    struct ini *ini;
    const char *next, *end;      /* what is still unread */
    int line;
    bool lost;                   /* the section's own line was refused: nobody knows where its keys belong */
    bool open;                   /* inih takes indented lines for the rest of the value above them */
    bool cut;                    /* but that key was refused */
    bool continues;              /* the line handed over is such a line, */
    bool expected;               /* and inih must report it */
    struct text value;           /* of the last entry, which owns it */
    int mistakes;
};

static void reader_refuse(struct reader *reader, int line, const char *why)
{
    if (reader->mistakes++ < INI_MISTAKE_LIMIT) ini_note(reader->ini, line, text_copy(why));
}

/* Takes ownership of the texts; a section's own line has no key and no value. */
static void reader_push(struct reader *reader, char *section, char *key, char *value)
{
    struct ini_entry *entry = array_push(reader->ini->entries, reader->ini->count);
    *entry = (struct ini_entry){section, key, value, reader->line};
}

static const char *bytes_fault(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (iscntrl((unsigned char)line[i]) && line[i] != '\t')
            return line[i] ? "a control character: this is not a text file"
                           : "a NUL byte: this is not a text file";
    return NULL;
}

/* Notes "[section]"; returns what is wrong with it, or NULL. */
static const char *reader_section(struct reader *reader, const char *line)
{
    const char *name = line + 1, *end = name + strcspn(name, ";[]");
    const char *rest = end + (*end != 0) + strspn(end + (*end != 0), BLANKS);
    if (!strchr(name, ']')) return "']' is missing";
    if (*end != ']') return "the name of a section cannot contain ';' or '['";
    if (end == name) return "the section has no name";
    if (end - name > SECTION_LIMIT) return "the section's name is longer than 48 bytes";
    if (strchr(BLANKS, *name) || strchr(BLANKS, end[-1])) return "blanks beside the section's name";
    if (*rest && (*rest != ';' || rest == end + 1)) return "nothing may follow ']'";
    reader_push(reader, text_format("%.*s", (int)(end - name), name), NULL, NULL);
    return NULL;
}

/* Judges a line that is not a comment. Returns what is wrong with it, or NULL. */
static const char *reader_judge(struct reader *reader, const char *line, bool whole)
{
    static const char too_long[] = "the line is longer than 197 bytes: continue its value in indented lines";
    const char *text = line + strspn(line, BLANKS);
    size_t word = strcspn(text, BLANKS "=:"), blanks = strspn(text + word, BLANKS);
    bool names_key = text[word + blanks] && strchr("=:", text[word + blanks]);
    reader->continues = reader->open && text > line;
    if (reader->continues && (*text == '[' || names_key))
        return "indented lines continue the value above them; keys and sections must not be indented";
    if (*text == '[') {
        const char *fault = whole ? reader_section(reader, text) : too_long;
        reader->lost = fault != NULL;
        reader->open = false;
        return fault;
    }
    if (!reader->continues) reader->cut = true;          /* until its key is reported */
    reader->open = true;
    reader->expected = whole && !reader->lost && !(reader->continues && reader->cut);
    return whole ? NULL : too_long;
}

static void reader_check_reported(struct reader *reader)
{
    if (reader->expected) reader_refuse(reader, reader->line, "not a [section], key = value or comment");
    reader->expected = false;
}

/* inih's fgets. */
static char *reader_next(char *buffer, int size, void *stream)
{
    struct reader *reader = stream;
    const char *line = reader->next, *newline, *fault;
    reader_check_reported(reader);
    if (line == reader->end || size < INI_LINE_LIMIT + 3) return NULL;
    newline = memchr(line, '\n', (size_t)(reader->end - line));
    size_t length = (size_t)((newline ? newline : reader->end) - line);
    reader->next += length + (newline != NULL);
    reader->line++;
    length -= length && line[length - 1] == '\r';
    bool whole = length <= INI_LINE_LIMIT, full = reader->ini->count == ENTRY_LIMIT;
    fault = full ? "the file has more than 200,000 sections and keys" : bytes_fault(line, length);
    /* More of what is not text at all would only be noise. */
    if (fault) reader->next = reader->end;
    snprintf(buffer, (size_t)size, "%.*s", whole ? (int)length : INI_LINE_LIMIT, line);
    if (!fault && !strchr(";#", buffer[strspn(buffer, BLANKS)])) fault = reader_judge(reader, buffer, whole);
    if (fault) reader_refuse(reader, reader->line, fault);
    if (fault || (reader->continues && reader->cut)) *buffer = '\0';
    return strcat(buffer, "\n");
}

static const char *key_fault(const char *section, const char *key)
{
    if (!*key) return "there is no key before '='";
    if (strlen(key) > KEY_LIMIT) return "the key is longer than 100 bytes";
    if (strpbrk(key, BLANKS ";[]#")) return "a key must be one word, without ; [ ] #";
    return *section ? NULL : "this key is not in a [section]";
}

/* The first line of a value. */
static const char *reader_key(struct reader *reader, const char *section, const char *key, const char *value)
{
    const char *fault = key_fault(section, key);
    if (fault) return fault;
    reader->value = (struct text){0};
    text_add(&reader->value, "%s", value);
    reader_push(reader, text_copy(section), text_copy(key), reader->value.data);
    return NULL;
}

/* A further line; not all builds of inih cut off its comment. */
static const char *reader_append(struct reader *reader, const char *key, const char *value)
{
    struct ini_entry *entry = &reader->ini->entries[reader->ini->count - 1];
    size_t length = 1;
    while (value[length] && (value[length] != ';' || !strchr(BLANKS, value[length - 1]))) length++;
    while (strchr(BLANKS, value[length - 1])) length--;
    text_add(&reader->value, "%s%.*s", strchr("\"", *entry->value) ? "" : " ", (int)length, value);
    entry->value = reader->value.data;
    if (strncmp(key, entry->key, strlen(key)) != 0) return "this build of inih does not join lines";
    return reader->value.length > VALUE_LIMIT ? "the value is longer than 20,000 bytes" : NULL;
}

/* inih's handler; other builds report sections, and keys without a value, too. */
static int reader_take(void *user, const char *section, const char *key, const char *value)
{
    struct reader *reader = user;
    if (!key || !value) return 1;
    reader->expected = false;
    if (reader->lost) return 1;
    const char *fault = reader->continues ? reader_append(reader, key, value)
                                          : reader_key(reader, section, key, value);
    reader->cut = fault != NULL;
    if (fault) reader_refuse(reader, reader->line, fault);
    return 1;
}

/* Entries whose value is wrong are dropped. */
static void reader_unquote(struct reader *reader)
{
    struct ini *ini = reader->ini;
    int kept = 0;
    for (int i = 0; i < ini->count; i++) {
        const char *fault = ini->entries[i].key ? ini_unquote(ini->entries[i].value) : NULL;
        if (fault) {
            reader_refuse(reader, ini->entries[i].line, fault);
            ini_entry_free(&ini->entries[i]);
        } else {
            ini->entries[kept++] = ini->entries[i];
        }
    }
    ini->count = kept;
}

static void ini_scan_bytes(const char *name, const char *bytes, size_t length, struct ini *ini)
{
    *ini = (struct ini){.file = text_copy(name)};
    size_t mark = length >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    struct reader reader = {.ini = ini, .next = bytes + mark, .end = bytes + length};
    ini_parse_stream(reader_next, &reader, reader_take, &reader);
    reader_check_reported(&reader);
    if (reader.next != reader.end) reader_refuse(&reader, reader.line, "this build of inih reads no further");
    reader_unquote(&reader);
    ini->more = reader.mistakes - INI_MISTAKE_LIMIT;
    ini_note_doubles(ini);
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
    char *bytes;
    size_t length;
    if (!directory_read(&directory_working, path, FILE_LIMIT, &bytes, &length, &reason))
        return fail(USAGE, "cannot read %s: %s", path, reason.text);
    ini_scan_bytes(path, bytes, length, ini);
    free(bytes);
    return OK;
}
