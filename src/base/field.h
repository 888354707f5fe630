/* field.h: a named, typed, documented member of a settings struct: an option, a setting of an op. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shape.h"
#include "status.h"
#include "text.h"

/* The C type of the struct member behind each row. */
enum field_type {
    FIELD_TEXT,      /* char *, owned by the struct, NULL when empty */
    FIELD_LIST,      /* char * like FIELD_TEXT: parts that commas may separate */
    FIELD_PATH,      /* char * like FIELD_TEXT: the path of a file or folder */
    FIELD_INT,       /* int64_t */
    FIELD_REAL,      /* double */
    FIELD_BOOL,      /* bool: yes no true false on off 1 0 */
    FIELD_SIZE,      /* int64_t bytes: suffixes K M G T, powers of 1024 */
    FIELD_DURATION,  /* double seconds: suffixes s m h d */
    FIELD_CHOICE,    /* int: the index into `choices` */
    FIELD_REALS,     /* struct field_reals: numbers separated by commas or spaces */
    FIELD_IMAGE_SIZE,/* struct image_size: the side of a square, "224", or height and width, "128x384" */
    FIELD_EVERY,     /* struct field_every: "5", "100 steps", "10m" */
};

#define FIELD_REALS_MAX 256
struct field_reals {
    int count;
    double value[FIELD_REALS_MAX];
};

enum field_unit { UNIT_EPOCHS, UNIT_STEPS, UNIT_SECONDS };
struct field_every {
    double amount;           /* 0: never */
    enum field_unit unit;
};

struct field {
    const char *name;
    enum field_type type;
    size_t offset;                 /* of the member in its struct */
    const char *initial;           /* default as text; NULL: required; "" is empty */
    double min, max;               /* inclusive, for numbers; min == max == 0: any */
    const char *const *choices;    /* FIELD_CHOICE: names, NULL-terminated */
    const char *word;              /* a number may also be a word: "auto", or several: "dynamic|auto";
                                    * FIELD_REALS: one, which stands for none */
    double word_value;             /* value of the first word; that of the next word is 1 less, ... */
    const char *help;              /* one sentence for --help and the manual */
};

/* Parses `text` into the member of `object`. On failure gives the reason ("must be between 0 and 1, not 7",
 * "no such choice; did you mean 'cosine'?") and leaves the member unchanged. */
bool field_parse(const struct field *field, void *object, const char *text, struct reason *reason);

/* Writes the member as field_parse would read it back. */
void field_print(const struct field *field, const void *object, struct text *out);

/* Sets every member to its default (rows without one are zeroed) and frees old texts: the object must have
 * been zeroed initially. `fields` ends with a row whose name is NULL. */
void field_defaults(const struct field *fields, void *object);
void field_release(const struct field *fields, void *object);

/* The values that may follow '=': "N", "yes|no", "sgd|adam"; and the range: "from 0 to 1", "at least 1",
 * nothing if any number is valid. For help and manuals. */
void field_kind(const struct field *field, struct text *out);
void field_range(const struct field *field, struct text *out);

/* The row called `name`, or NULL. */
const struct field *field_find(const struct field *fields, const char *name);
