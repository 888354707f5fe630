/* ini.h: INI files as a list of entries with line numbers, for configurations and model files. */
#pragma once

#include "base/status.h"

struct ini_entry {
    char *section;       /* "block:basic"; never NULL ("" before the first section) */
    char *key;           /* NULL marks the line of a section header itself */
    char *value;         /* trimmed, without comment */
    int line;            /* from 1 */
};

struct ini {
    char *file;          /* as messages name it */
    struct ini_entry *entries;
    int count;
};

/* Reads a file through inih with a reader of our own (line numbers, no cut lines, no joined
 * continuation lines). Refused with file:line: lines over 4,000 bytes, sections over 48 and keys
 * over 100, lines that are neither section, key nor comment, keys that are not one word, keys before
 * a section, a key twice in a section, control characters. Comments begin with ; or # at the start
 * of a line, or after white space with ';'. USAGE if anything is wrong in the file (each such line is
 * reported, the first twenty of them), or if it cannot be read. */
enum status ini_read(const char *path, struct ini *ini);
enum status ini_read_text(const char *name, const char *text, struct ini *ini);
void ini_free(struct ini *ini);
