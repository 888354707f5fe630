/* ini.h: INI files as a list of entries with line numbers, for configurations and model files. */
#pragma once

#include <limits.h>

#include "base/status.h"
#include "base/text.h"

struct ini_entry {
    char *section;       /* "block:basic"; never NULL ("" before the first section) */
    char *key;           /* NULL marks the line of a section header itself */
    char *value;         /* trimmed, without comment */
    int line;            /* from 1 */
};

/* A line that cannot be read. */
struct ini_mistake {
    int line;
    char *why;
};

struct ini {
    char *file;          /* as messages name it */
    struct ini_entry *entries;
    int count;
    struct ini_mistake *mistakes;        /* in line order, */
    int mistake_count, reported;         /* of which so many were reported */
    int more;                            /* mistakes beyond those that are kept */
};

/* Reads a file by inih. Indented lines continue the value above them: they are joined by a blank, in
 * quotation marks by nothing. Refused with file:line: lines over 197 bytes, which inih would cut, sections
 * over 48, keys over 100, values over 20,000, lines that are neither section, key nor comment, indented
 * ones that read like a key or a section, keys that are not one word, keys before a section, a key twice in a
 * section, text behind a ']', control characters. Comments begin with ; or # at the start of a line, or after
 * white space with ';'. A value that begins with a quotation mark ends with another one; in it, a backslash
 * stands before ", before \, and in \t, \n, \r and \xHH. USAGE if anything is wrong in the file (each such
 * line is reported, the first twenty of them), or if it cannot be read. */
enum status ini_read(const char *path, struct ini *ini);
enum status ini_read_text(const char *name, const char *text, struct ini *ini);

/* Loads for a caller that looks for mistakes of its own: those of the file are kept, and USAGE says only
 * that the file cannot be read at all. ini_report reports those in lines before `line`; with INI_END the
 * rest, and returns USAGE if there were any. */
enum status ini_scan(const char *path, struct ini *ini);
void ini_scan_text(const char *name, const char *text, struct ini *ini);
#define INI_END INT_MAX
enum status ini_report(struct ini *ini, int line);

/* Bytes of a line, without its end. */
#define INI_LINE_LIMIT 197

/* Adds a value, quoted if it would not be read back otherwise, and in several lines if it is long. */
void ini_add_value(struct text *out, const char *value);

/* A text that amptrain wrote, perhaps before it had inih, with long lines folded, and ` ;` in quotation marks
 * escaped; the caller frees it. */
char *ini_fold(const char *text);

/* Adds "; COMMENT" behind so many blanks, or in a line of its own. */
void ini_add_comment(struct text *out, int blanks, const char *comment);

/* Removes a value's quotation marks, in place, if it has them. Returns what is wrong with it, or NULL. */
const char *ini_unquote(char *value);

void ini_free(struct ini *ini);
