/* html_page.h: a self-contained HTML page, with styles for light and dark mode and its only script. It is
 * well-formed XML, too. */
#pragma once

#include "base/text.h"

/* How a page begins, up to its title. */
#define HTML_HEAD "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head>" \
                  "<meta charset=\"utf-8\"/>\n" \
                  "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n<title>"

/* The head of a page, with its styles, up to the beginning of its body; and its end, with the script. */
void html_begin(struct text *out, const char *title);
void html_end(struct text *out);

/* A heading, with the id to which the page's list of sections links. */
void html_section(struct text *out, const char *id, const char *title);

/* Cells of a table row, which the caller begins and ends: text, or a number with that many decimals, empty if
 * it is not finite. */
void html_cell(struct text *out, const char *value);
void html_number(struct text *out, double value, int decimals);
