/* csv_reader.h: splits a text of comma-separated values (RFC 4180) in place, record by record. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct csv_reader {
    char *at, *end;            /* what is left of the text */
    char separator;
    int64_t line;              /* of the record read last, from 1 */
    int64_t next;              /* of the record to be read */
};

/* The text, which is `count` bytes and one more that may be written to, and must outlive the fields. A UTF-8
 * byte order mark is skipped. The separator is the one that the first line has: a comma, else a tab, else a
 * semicolon. False, with a reason, if it is no such text: UTF-16, or lines that end in CR alone. */
bool csv_reader_open(struct csv_reader *reader, char *text, size_t count, struct reason *reason);

/* The fields of the next record, each ended by '\0': spaces around a field are removed, quotes around it too,
 * and pairs of quotes in it are one. Empty lines are skipped. Returns the number of fields, of which the
 * first `most` are set; 0: there is none or, with a reason, it is wrong. */
int csv_reader_next(struct csv_reader *reader, char **fields, int most, struct reason *reason);
