#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "conf/ini.h"

/* Blanks before the lines that continue a value. */
enum { INDENT = 4 };

/* The byte that an escape stands for, behind whose backslash `*at` is, which moves to its end; -1: none. */
static int escaped_byte(char **at)
{
    static const char letters[] = "\"\\tnr", bytes[] = "\"\\\t\n\r";
    const char *letter = strchr(letters, **at);
    int byte = **at && letter ? bytes[letter - letters] : -1;
    if (**at == 'x' && isxdigit((unsigned char)(*at)[1]) && isxdigit((unsigned char)(*at)[2])) {
        byte = (int)strtol((char[]){(*at)[1], (*at)[2], '\0'}, NULL, 16);
        *at += 2;
    }
    ++*at;
    return byte > 0 ? byte : -1;
}

const char *ini_unquote(char *value)
{
    if (*value != '"') return NULL;
    char *at = value + 1, *to = value;
    while (*at && *at != '"') {
        int byte = (unsigned char)*at++;
        if (byte == '\\' && (byte = escaped_byte(&at)) < 0)
            return "a backslash in quotation marks must be followed by one of \" \\ t n r, or by x and two "
                   "hexadecimal digits";
        *to++ = (char)byte;
    }
    if (!*at) return "the closing quotation mark is missing; a ; behind a blank must be written as \\x3b";
    if (at[1]) return "nothing may follow the closing quotation mark";
    *to = '\0';
    return NULL;
}

/* The bytes of `out` behind its last end of a line. */
static size_t last_line(const struct text *out)
{
    const char *newline = out->data ? strrchr(out->data, '\n') : NULL;
    return newline ? out->length - (size_t)(newline + 1 - out->data) : out->length;
}

static bool value_is_plain(const char *value, size_t room)
{
    size_t length = strlen(value);
    if (length > room || *value == '"' || strchr(value, ';')) return false;
    if (length && (isspace((unsigned char)*value) || isspace((unsigned char)value[length - 1]))) return false;
    for (; *value; value++)
        if (iscntrl((unsigned char)*value)) return false;
    return true;
}

/* True if the byte would be read as something else where it stands, in quotation marks. */
static bool byte_is_special(const char *value, const char *at, size_t column, bool folded)
{
    if (iscntrl((unsigned char)*at)) return true;
    if (*at == ';' && at > value && isspace((unsigned char)at[-1])) return true;
    if (*at == ' ' && column > INI_LINE_LIMIT - 12) return true;         /* perhaps the line's last */
    return folded && strchr(column == INDENT ? "=: ;#[" : "=:", *at);
}

void ini_add_value(struct text *out, const char *value)
{
    size_t column = last_line(out);
    if (column <= INI_LINE_LIMIT && value_is_plain(value, INI_LINE_LIMIT - column)) {
        text_add(out, "%s", value);
        return;
    }
    bool folded = false;
    text_add(out, "\"");
    column++;
    for (const char *at = value; *at; at++) {
        /* Room for a byte and the closing mark; characters of UTF-8 stay whole. */
        if (column + 5 > INI_LINE_LIMIT || (column + 8 > INI_LINE_LIMIT && (*at & 0xc0) != 0x80)) {
            text_add(out, "\n%*s", INDENT, "");
            column = INDENT;
            folded = true;
        }
        bool marked = *at == '"' || *at == '\\', special = byte_is_special(value, at, column, folded);
        text_add(out, special ? "\\x%02x" : marked ? "\\%c" : "%c", (unsigned char)*at);
        column += special ? 4 : marked ? 2 : 1;
    }
    text_add(out, "\"");
}

/* The closing quotation mark of a value that begins with one; NULL: it has none. */
static char *closing_quote(char *value)
{
    char *at = value + 1;
    while (*at && *at != '"') at += *at == '\\' && at[1] ? 2 : 1;
    return *at ? at : NULL;
}

/* Cuts off the comment, which a ';' behind a blank begins, and the blanks before it; a '=' stands before. */
static void cut_comment(char *value)
{
    char *end = value;
    while (*end && (*end != ';' || !isspace((unsigned char)end[-1]))) end++;
    while (end > value && isspace((unsigned char)end[-1])) end--;
    *end = '\0';
}

/* A line of such a text, "key = value", as it is written today; false: it stays as it is. */
static bool fold_line(char *line, struct text *out)
{
    char *value = strchr(line, '=');
    if (!value || strchr("[;# \t", *line)) return false;
    value += 1 + strspn(value + 1, " \t");
    char *close = *value == '"' ? closing_quote(value) : NULL;
    bool special = close && strstr(value, " ;") && strstr(value, " ;") < close;
    if ((!special && strlen(line) <= INI_LINE_LIMIT) || (*value == '"' && !close)) return false;
    if (close) close[1] = '\0';
    else cut_comment(value);
    int length = (int)(value - line);
    if (ini_unquote(value)) return false;
    text_add(out, "%.*s", length, line);
    ini_add_value(out, value);
    text_add(out, "\n");
    return true;
}

char *ini_fold(const char *text)
{
    struct text out = {0};
    text_add(&out, "%s", "");
    for (size_t length; *text; text += length) {
        length = strcspn(text, "\n");
        char *line = text_format("%.*s", (int)length, text);
        length += text[length] == '\n';
        if (!fold_line(line, &out)) text_add(&out, "%.*s", (int)length, text);
        free(line);
    }
    return out.data;
}

void ini_add_comment(struct text *out, int blanks, const char *comment)
{
    bool fits = last_line(out) + (size_t)blanks + strlen(comment) + 2 <= INI_LINE_LIMIT;
    text_add(out, "%s%*s; %s", fits ? "" : "\n", fits ? blanks : INDENT, "", comment);
}
