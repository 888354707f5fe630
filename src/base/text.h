/* text.h: a growing string, and writing JSON into it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data;      /* always ends in '\0' once something was added; text_free gives it back */
    size_t length;
};

void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

/* `value` as a terminal may be sent it, in `out`, cut where `room` ends; returns `out`. Control characters
 * and bytes that are not UTF-8 become \xNN: no name out of a file moves the cursor or changes colours. */
const char *text_visible(const char *value, char *out, size_t room);

/* JSON. The caller writes braces, commas and keys by text_add; these write values.
 * Strings are escaped and invalid UTF-8 is replaced; numbers are "%.9g", what is not finite is null. */
void text_json_string(struct text *text, const char *value);
void text_json_number(struct text *text, double value);
/* A string of any bytes, such as a file's name: as text_escape has it. */
void text_json_bytes(struct text *text, const char *value);

/* Appends `value` as UTF-8 that text_unescape makes the same bytes of: those that are not UTF-8 become
 * \xNN, and a backslash before an x \x5c. */
void text_escape(struct text *text, const char *value);
/* In place. What text_escape cannot have written stays. */
void text_unescape(char *text);

/* Appends `value` as HTML and XML have it, in text and in quoted attributes: with entities, and U+FFFD for
 * bytes that neither allows. */
void text_html(struct text *text, const char *value);

/* Appends bytes as base64 (RFC 4648). */
void text_base64(struct text *text, const uint8_t *bytes, size_t count);

/* Braces, brackets and commas of a JSON text, those in strings not counted: of each a parser makes something
 * that may take a hundred times the memory. */
size_t text_json_marks(const char *json, size_t length);

/* Appends text for a manual page: troff sees no commands in it, '-' stays the character that is
 * typed, and lines are short. */
void text_manual(struct text *text, const char *value);

/* Whether `text` ends in `ending`, and has more before it. */
bool text_ends_in(const char *text, const char *ending);

/* The nearest of `count` names to `word` by edit distance, or NULL if none is near: what
 * "did you mean" says. */
const char *text_nearest(const char *word, const char *const *names, int count);

/* "9.8 GiB", "31.4 MiB", "512 B": for people. */
#define TEXT_BYTES 32
const char *text_bytes(uint64_t bytes, char text[TEXT_BYTES]);

/* "2.3026", "27.50 %" for people: so many decimals and, behind a space, the unit, if there is one.
 * "not finite" where the number is not. */
#define TEXT_NUMBER 48
const char *text_number(double value, int decimals, const char *unit, char text[TEXT_NUMBER]);
