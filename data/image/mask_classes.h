/* mask_classes.h: the classes of masks, and what their values mean: numbers, or colours by a palette file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MASK_IGNORE 255            /* in the place of a class: a pixel that does not count */
#define MASK_NONE (-1)             /* a value that has no class */
#define MASK_CLASSES_MAX 255
#define MASK_NUMBERS 65536         /* those of samples of 16 bits */

struct mask_colour {
    uint32_t rgb;                  /* red << 16 | green << 8 | blue */
    int class;                     /* or MASK_IGNORE */
    int line;                      /* of the palette file */
};

struct mask_classes {
    int classes;
    char **names;                  /* [classes] */
    int16_t *numbers;              /* [MASK_NUMBERS] the class of each, MASK_IGNORE or MASK_NONE */
    struct mask_colour *colours;   /* [colour_count], sorted */
    size_t colour_count;
    int other;                     /* of all other values: a class, MASK_IGNORE or MASK_NONE */
    bool by_number;                /* grey values and indices of palettes are numbers; otherwise colours */
};

/* Numbers are the classes, and 255 is MASK_IGNORE if `ignore`. The first `named` names are given, others
 * are numbers. */
void mask_classes_numbers(int classes, char *const *names, int named, bool ignore, struct mask_classes *out);

/* Masks of two values: 0 and 255. Names NULL: background and foreground. */
void mask_classes_two(char *const *names, struct mask_classes *out);

/* All values of 8 bits are classes, to look at masks whose classes are not known. */
void mask_classes_any(struct mask_classes *out);

/* Reads a palette file: lines `0 = road`, `128 64 128 = road`, `#804080 = road`, `255 = ignore`, `other =
 * ignore`; ';' begins a comment. Classes are numbered by their first line. USAGE, with file and line: what is
 * on the left is there twice, or a line is wrong, or there are no classes or too many. */
enum status mask_classes_read(const char *path, struct mask_classes *out);
enum status mask_classes_parse(const char *text, struct mask_classes *out);    /* of such a file */

/* The names that data.classes gives: NAME,NAME,... or a file of them at `path`, one a line; numbers for N,
 * none for auto. USAGE if they are wrong. The caller frees them (text_list_free). */
enum status mask_class_names(const char *spec, const char *path, char ***names, int *count);

/* Writes all of it but the names as text, and reads that back, with names. False: it is no such text. */
struct text;
void mask_classes_print(const struct mask_classes *classes, struct text *out);
bool mask_classes_scan(const char *text, char *const *names, int count, struct mask_classes *out);

void mask_classes_copy(const struct mask_classes *from, struct mask_classes *to);
void mask_classes_free(struct mask_classes *classes);      /* accepts a zeroed struct */

/* The class of a colour, MASK_IGNORE or MASK_NONE. */
int mask_classes_colour(const struct mask_classes *classes, uint32_t rgb);

/* Gives each class another number, of more classes of these names. */
void mask_classes_renumber(struct mask_classes *classes, const int *numbers, char *const *names, int count);

/* A hash of names and meanings. */
uint64_t mask_classes_hash(const struct mask_classes *classes);
