/* cuda_tuning.h: the autotuner's choices, cached in a file for the next start, or in memory for a run.
 *
 * ${XDG_CACHE_HOME:-$HOME/.cache}/amptrain/algorithms holds one choice a line. Any number of programs may use
 * it at once; a line that is damaged, or a file that cannot be read or written, is ignored. */
#pragma once

struct tuning;
struct text;

/* Reads the file. Never NULL. */
struct tuning *tuning_open(void);

/* An empty cache without a file. */
struct tuning *tuning_new(void);

/* Keys and choices are one line each, and a key holds no '='. NULL: nothing is remembered; else it lives
 * until tuning_close. */
const char *tuning_find(const struct tuning *tuning, const char *key);
void tuning_set(struct tuning *tuning, const char *key, const char *choice);

/* The whole cache as text in the file's format, in the order of keys; and adding the entries of such text for
 * keys that are not set. */
void tuning_print(struct tuning *tuning, struct text *out);
void tuning_add(struct tuning *tuning, const char *lines);

/* Adds what was set to the file, if there is one, keeping what others have written in the meantime. */
void tuning_close(struct tuning *tuning);
