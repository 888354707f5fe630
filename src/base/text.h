/* text.h: a growing string, and writing JSON into it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *data;      /* terminated by '\0' once something was added; freed by text_free */
    size_t length;
};

void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

/* `value` made safe for a terminal, in `out`, truncated to `room`; returns `out`. Control characters and
 * bytes that are not UTF-8 become \xNN, those that change the direction of writing \uNNNN, so that names
 * from files cannot move the cursor, change colours or reverse what follows. */
const char *text_visible(const char *value, char *out, size_t room);

/* JSON values; members.h writes the members of objects.
 * Strings are escaped and invalid UTF-8 is replaced; numbers are "%.9g", what is not finite is null. */
void text_json_string(struct text *text, const char *value);
void text_json_number(struct text *text, double value);
/* A string of any bytes, such as a file's name, escaped by text_escape. */
void text_json_bytes(struct text *text, const char *value);
/* Arrays: of numbers, and of such strings. */
void text_json_numbers(struct text *text, const double *values, int count);
void text_json_names(struct text *text, char *const *names, int count);

/* Appends `value` as UTF-8 that text_unescape makes the same bytes of: those that are not UTF-8 become
 * \xNN, and a backslash before an x \x5c. */
void text_escape(struct text *text, const char *value);
/* In place. Other backslashes are unchanged. */
void text_unescape(char *text);

/* Appends `value` escaped for HTML and XML text and quoted attributes: with entities, and U+FFFD for invalid
 * characters. */
void text_html(struct text *text, const char *value);

/* Appends bytes as base64 (RFC 4648). */
void text_base64(struct text *text, const uint8_t *bytes, size_t count);

/* The number of braces, brackets and commas of a JSON text outside of strings: a parser may need a hundred
 * times their memory. */
size_t text_json_marks(const char *json, size_t length);

/* Appends text for a manual page: troff commands are escaped, '-' stays a hyphen-minus, and lines are
 * short. */
void text_manual(struct text *text, const char *value);

/* True if `text` ends in `ending`, and has more before it. */
bool text_ends_in(const char *text, const char *ending);

/* The nearest of `count` names to `word` by edit distance, or NULL if none is near, for "did you mean". */
const char *text_nearest(const char *word, const char *const *names, int count);

/* "9.8 GiB", "31.4 MiB", "512 B": for people. */
#define TEXT_BYTES 32
const char *text_bytes(uint64_t bytes, char text[TEXT_BYTES]);

/* "2.3026", "27.50 %" for people: with that many decimals, a space and the unit, if there is one. "not
 * finite" if it is not. */
#define TEXT_NUMBER 48
const char *text_number(double value, int decimals, const char *unit, char text[TEXT_NUMBER]);
/* Energy: "27.5 J", "14.20 Wh", "1.02 kWh". */
const char *text_energy(double joules, char text[TEXT_NUMBER]);
