/* csv.h: fields of comma-separated values (RFC 4180) that are safe to open in a spreadsheet. */
#pragma once

#include "base/text.h"

/* Appends `value` in quotes, as it is. */
void csv_quote(struct text *line, const char *value);

/* Appends it so, but control characters and bytes that are not UTF-8 become \xNN (text_visible), so
 * that a record is always one line; a value that a spreadsheet would take for a formula, or that begins
 * with an apostrophe, gets an apostrophe in front. */
void csv_text(struct text *line, const char *value);
