#include "base/csv_reader.h"

#include <string.h>

/* A space or tab that separates no fields. */
static bool is_blank(const struct csv_reader *reader, char byte)
{
    return byte == ' ' || (byte == '\t' && reader->separator != '\t');
}

static void skip_blanks(struct csv_reader *reader)
{
    while (reader->at < reader->end && is_blank(reader, *reader->at)) reader->at++;
}

static char find_separator(const char *text, const char *end)
{
    const char *line_end = memchr(text, '\n', (size_t)(end - text));
    size_t count = (size_t)((line_end ? line_end : end) - text);
    for (const char *separator = ",\t;"; *separator; separator++)
        if (memchr(text, *separator, count)) return *separator;
    return ',';
}

bool csv_reader_open(struct csv_reader *reader, char *text, size_t count, struct reason *reason)
{
    const char *bytes = text;
    if (count >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0))
        return because(reason, "is UTF-16; save it as UTF-8");
    if (memchr(text, '\r', count) && !memchr(text, '\n', count))
        return because(reason, "its lines end in CR alone; save it with LF or CR LF");
    if (count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) text += 3;
    *reader = (struct csv_reader){.at = text, .end = text + (count - (size_t)(text - bytes)), .next = 1};
    reader->separator = find_separator(text, reader->end);
    return true;
}

/* A record being split. */
struct csv_split {
    struct csv_reader *reader;
    struct reason *reason;
    bool last;                 /* the field was the record's last one */
};

/* Reads past a field's end: a separator, or the end of the line, which is skipped; false: neither. */
static bool end_field(struct csv_split *split)
{
    struct csv_reader *reader = split->reader;
    if (reader->at < reader->end && *reader->at == reader->separator) {
        reader->at++;
        return true;
    }
    split->last = true;
    if (reader->at < reader->end && *reader->at == '\r') reader->at++;
    if (reader->at == reader->end) return true;
    if (*reader->at != '\n') return false;
    reader->at++;
    reader->next++;
    return true;
}

/* A quoted field, whose opening quote is next, moved to `to`; NULL: it is wrong. */
static char *read_quoted(struct csv_split *split)
{
    struct csv_reader *reader = split->reader;
    char *begin = ++reader->at, *to = begin;
    for (;; to++) {
        if (reader->at == reader->end) {
            because(split->reason, "a quotation mark is not closed");
            return NULL;
        }
        char byte = *reader->at++;
        if (byte == '"' && (reader->at == reader->end || *reader->at != '"')) break;
        if (byte == '"') reader->at++;
        if (byte == '\n') reader->next++;
        if (byte == '\0') {
            because(split->reason, "it has a byte of value 0, so it is no text");
            return NULL;
        }
        *to = byte;
    }
    skip_blanks(reader);
    if (!end_field(split)) {
        because(split->reason, "there is more behind a closing quotation mark");
        return NULL;
    }
    *to = '\0';
    return begin;
}

/* Where the field that begins there ends: at its separator, line end or the text's end. */
static char *find_end(const struct csv_reader *reader, char *at)
{
    char separator = reader->separator;
    for (; at < reader->end && *at != separator; at++)
        if (*at == '\n' || *at == '\r' || *at == '"' || *at == '\0') break;
    return at;
}

static char *read_plain(struct csv_split *split)
{
    struct csv_reader *reader = split->reader;
    char *begin = reader->at, *end = find_end(reader, begin), *trimmed = end;
    reader->at = end;
    bool good = end_field(split);
    if (!good) {
        because(split->reason, *end == '"'  ? "a quotation mark inside a field without quotation marks"
                               : *end == '\0' ? "it has a byte of value 0, so it is no text"
                                             : "there is a CR inside the line");
        return NULL;
    }
    while (trimmed > begin && is_blank(reader, trimmed[-1])) trimmed--;
    *trimmed = '\0';
    return begin;
}

static char *read_field(struct csv_split *split)
{
    struct csv_reader *reader = split->reader;
    skip_blanks(reader);
    return reader->at < reader->end && *reader->at == '"' ? read_quoted(split) : read_plain(split);
}

static void skip_empty_lines(struct csv_reader *reader)
{
    for (;;) {
        char *at = reader->at;
        while (at < reader->end && (is_blank(reader, *at) || *at == '\r')) at++;
        if (at == reader->end) reader->at = at;
        if (at == reader->end || *at != '\n') return;
        reader->at = at + 1;
        reader->next++;
    }
}

int csv_reader_next(struct csv_reader *reader, char **fields, int most, struct reason *reason)
{
    struct csv_split split = {.reader = reader, .reason = reason};
    int count = 0;
    reason->text[0] = '\0';
    skip_empty_lines(reader);
    reader->line = reader->next;
    if (reader->at == reader->end) return 0;
    while (!split.last) {
        char *field = read_field(&split);
        if (!field) return 0;
        if (count < most) fields[count] = field;
        count++;
    }
    return count;
}
