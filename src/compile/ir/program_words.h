/* program_words.h: the words of a program's text, which dump.c writes and parse.c reads; for this folder
 * only. */
#pragma once

#include "compile/ir/program.h"

/* Names by the numbers of their enums, each list ended by NULL. */
extern const char *const instruction_kind_words[], *const home_words[];
extern const char *const value_kind_words[], *const dtype_words[], *const schedule_words[];

/* The values that the program as a whole names, by the place of their id in struct program. */
struct program_word {
    const char *name;
    size_t offset;           /* of an int */
};
extern const struct program_word program_value_words[];   /* ended by a row without a name */
