#include "text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* The capacity of a struct text follows from its length. */
static size_t text_capacity(size_t length)
{
    size_t capacity = 64;
    while (capacity <= length) capacity *= 2;
    return capacity;
}

static void text_reserve(struct text *text, size_t more)
{
    size_t needed = text_capacity(text->length + more);
    if (!text->data || needed > text_capacity(text->length))
        text->data = memory_resize(text->data, needed, 1);
}

void text_add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) return;
    text_reserve(text, (size_t)length);
    va_start(arguments, format);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)length;
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

bool text_ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text), tail = strlen(ending);
    return length > tail && strcmp(text + length - tail, ending) == 0;
}

/* The bytes of the UTF-8 character at `s`, or 0 if it is invalid: overlong forms, surrogates and values above
 * U+10FFFF are (RFC 3629). */
static int utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    int length = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return length;
}

/* The valid character of `length` bytes at `s`. */
static unsigned utf8_character(const unsigned char *s, int length)
{
    unsigned character = length == 1 ? s[0] : s[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++) character = character << 6 | (s[i] & 0x3f);
    return character;
}

/* True if a character steers what shows it: a control character (C0, DEL, C1), the end of a line or
 * paragraph, or the direction of writing (Unicode's Bidi_Control). */
static bool is_control(unsigned c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* One character of `s` as text_visible has it, in `shown`; returns how many bytes of `s` it is. */
static int show_character(const unsigned char *s, char shown[8])
{
    int length = utf8_length(s);
    unsigned c = utf8_character(s, length);
    if (length == 0) snprintf(shown, 8, "\\x%02x", s[0]);
    else if (c == '\t' || !is_control(c)) snprintf(shown, 8, "%.*s", length, (const char *)s);
    else snprintf(shown, 8, c < 0x100 ? "\\x%02x" : "\\u%04x", c);
    return length ? length : 1;
}

const char *text_visible(const char *value, char *out, size_t room)
{
    size_t length = 0;
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        char shown[8];
        s += show_character(s, shown);
        size_t more = strlen(shown);
        if (length + more >= room) break;
        memcpy(out + length, shown, more);
        length += more;
    }
    out[length] = '\0';
    return out;
}

static void text_json_character(struct text *text, const unsigned char *s, int length)
{
    static const char short_escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (const char *pair = short_escapes; length == 1 && *pair; pair += 2)
        if (s[0] == (unsigned char)pair[0]) {
            text_add(text, "\\%c", pair[1]);
            return;
        }
    unsigned c = utf8_character(s, length);
    if (length == 0) text_add(text, "\\ufffd");
    else if (is_control(c)) text_add(text, "\\u%04x", c);
    else text_add(text, "%.*s", length, (const char *)s);
}

void text_json_string(struct text *text, const char *value)
{
    text_add(text, "\"");
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        int length = utf8_length(s);
        text_json_character(text, s, length);
        s += length ? length : 1;
    }
    text_add(text, "\"");
}

void text_escape(struct text *text, const char *value)
{
    text_add(text, "%s", "");
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        int length = utf8_length(s);
        if (length == 0 || (s[0] == '\\' && s[1] == 'x')) text_add(text, "\\x%02x", s[0]);
        else text_add(text, "%.*s", length, (const char *)s);
        s += length ? length : 1;
    }
}

void text_unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned byte = 0;
        bool escaped = from[0] == '\\' && from[1] == 'x' && isxdigit((unsigned char)from[2]) &&
                       isxdigit((unsigned char)from[3]) && sscanf(from + 2, "%2x", &byte) == 1 &&
                       (byte >= 0x80 || byte == '\\');
        *to = escaped ? (char)byte : *from;
        from += escaped ? 4 : 1;
    }
    *to = '\0';
}

void text_json_bytes(struct text *text, const char *value)
{
    struct text escaped = {0};
    text_escape(&escaped, value);
    text_json_string(text, escaped.data);
    text_free(&escaped);
}

void text_json_numbers(struct text *text, const double *values, int count)
{
    text_add(text, "[");
    for (int i = 0; i < count; i++) {
        text_add(text, i ? "," : "");
        text_json_number(text, values[i]);
    }
    text_add(text, "]");
}

void text_json_names(struct text *text, char *const *names, int count)
{
    text_add(text, "[");
    for (int i = 0; i < count; i++) {
        text_add(text, i ? "," : "");
        text_json_bytes(text, names[i]);
    }
    text_add(text, "]");
}

void text_json_number(struct text *text, double value)
{
    if (isfinite(value)) text_add(text, "%.9g", value);
    else text_add(text, "null");
}

void text_html(struct text *text, const char *value)
{
    static const char *const entities[128] = {
        ['<'] = "&lt;", ['>'] = "&gt;", ['&'] = "&amp;", ['"'] = "&quot;",
    };
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        int length = utf8_length(s);
        bool control = is_control(utf8_character(s, length));
        bool kept = length > 0 && (!control || s[0] == '\n' || s[0] == '\t') &&
                    !(s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe);      /* U+FFFE, U+FFFF */
        if (length == 1 && entities[s[0]]) text_add(text, "%s", entities[s[0]]);
        else if (kept) text_add(text, "%.*s", length, (const char *)s);
        else text_add(text, "\xef\xbf\xbd");
        s += length ? length : 1;
    }
}

void text_base64(struct text *text, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t bits = (uint32_t)bytes[i] << 16;
        if (left > 1) bits |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2) bits |= bytes[i + 2];
        text_add(text, "%c%c%c%c", digits[bits >> 18], digits[bits >> 12 & 63],
                 left > 1 ? digits[bits >> 6 & 63] : '=', left > 2 ? digits[bits & 63] : '=');
    }
}

size_t text_json_marks(const char *json, size_t length)
{
    size_t marks = 0;
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        if (quoted && json[i] == '\\') i++;
        else if (json[i] == '"') quoted = !quoted;
        else if (!quoted) marks += json[i] == '{' || json[i] == '[' || json[i] == ',';
    }
    return marks;
}

void text_manual(struct text *text, const char *value)
{
    int column = 0;
    for (; *value; value++, column++) {
        if (*value == ' ' && column > 60) {
            text_add(text, "\n");
            column = -1;
            continue;
        }
        if (column == 0 && (*value == '.' || *value == '\'')) text_add(text, "\\&");
        if (*value == '-') text_add(text, "\\-");
        else if (*value == '\\') text_add(text, "\\e");
        else text_add(text, "%c", *value);
    }
}

#define NAME_LIMIT 64   /* maximum length of words that are compared */

static int text_smaller(int a, int b)
{
    return a < b ? a : b;
}

static int same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Insertions, deletions, replacements and swaps of neighbours that lead from a to b (optimal string
 * alignment distance), letters compared without their case. */
static int edit_distance(const char *a, const char *b)
{
    int rows = (int)strlen(a), columns = (int)strlen(b);
    int cost[3][NAME_LIMIT + 1];
    if (rows > NAME_LIMIT || columns > NAME_LIMIT) return 2 * NAME_LIMIT;
    for (int j = 0; j <= columns; j++) cost[0][j] = j;
    for (int i = 1; i <= rows; i++) {
        int *now = cost[i % 3], *above = cost[(i + 2) % 3], *two_above = cost[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= columns; j++) {
            now[j] = above[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            now[j] = text_smaller(now[j], text_smaller(above[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]))
                now[j] = text_smaller(now[j], two_above[j - 2] + 1);
        }
    }
    return cost[rows % 3][columns];
}

/* True if underscores divide `word` into `name` and others: batch_size has batch. */
static bool has_part(const char *word, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = word; length >= 4 && (at = strstr(at, name)); at++) {
        bool begins = at == word || at[-1] == '_', ends = at[length] == '_' || at[length] == '\0';
        if (begins && ends) return true;
    }
    return false;
}

/* Among names that share a part with the word, the one with the smallest edit distance is nearest: val_crop,
 * not crop, for vl_crop. */
struct distance {
    int shown, edits;
};

static struct distance name_distance(const char *word, const char *name)
{
    size_t length = strlen(word);
    int edits = edit_distance(word, name);
    bool begins = length >= 2 && strncmp(word, name, length) == 0;
    return (struct distance){begins || has_part(word, name) ? text_smaller(edits, 1) : edits, edits};
}

static bool is_nearer(struct distance a, struct distance b)
{
    return a.shown < b.shown || (a.shown == b.shown && a.edits < b.edits);
}

const char *text_nearest(const char *word, const char *const *names, int count)
{
    const char *nearest = NULL;
    int limit = (int)strlen(word) / 3;
    struct distance best = {limit < 1 ? 2 : limit + 1, 0};
    for (int i = 0; i < count; i++) {
        struct distance distance = name_distance(word, names[i]);
        if (!is_nearer(distance, best)) continue;
        best = distance;
        nearest = names[i];
    }
    return nearest;
}

const char *text_bytes(uint64_t bytes, char text[TEXT_BYTES])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = -1;
    /* 1023.95 would be printed as 1024.0, so the next unit is used. */
    while (value >= (unit < 0 ? 1024 : 1023.95)) {
        value /= 1024;
        unit++;
    }
    if (unit < 0) snprintf(text, TEXT_BYTES, "%d B", (int)bytes);
    else snprintf(text, TEXT_BYTES, "%.1f %s", value, units[unit]);
    return text;
}

const char *text_number(double value, int decimals, const char *unit, char text[TEXT_NUMBER])
{
    const char *space = unit ? " " : "";
    if (!unit) unit = "";
    if (!isfinite(value)) snprintf(text, TEXT_NUMBER, "not finite");
    else if (fabs(value) < 1e15) snprintf(text, TEXT_NUMBER, "%.*f%s%.8s", decimals, value, space, unit);
    else snprintf(text, TEXT_NUMBER, "%.6g%s%.8s", value, space, unit);
    return text;
}

const char *text_energy(double joules, char text[TEXT_NUMBER])
{
    if (joules < 3600) return text_number(joules, 1, "J", text);
    if (joules < 3.6e6) return text_number(joules / 3600, 2, "Wh", text);
    return text_number(joules / 3.6e6, 2, "kWh", text);
}
