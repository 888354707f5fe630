/* ini.h: INI files as a list of entries with their lines; configurations and model files are both read by it. */
#ifndef CONF_INI_H
#define CONF_INI_H

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
 * continuation lines). Refused with file:line: lines over 4,000 bytes, lines that are neither
 * section, key nor comment, keys before a section, a key twice in a section, NUL bytes. Comments
 * begin with ; or # at the start of a line, or after white space with ';'. USAGE for what is wrong
 * in the file, or if it cannot be read. */
enum status ini_read(const char *path, struct ini *ini);
enum status ini_read_text(const char *name, const char *text, struct ini *ini);
void ini_free(struct ini *ini);

#endif
