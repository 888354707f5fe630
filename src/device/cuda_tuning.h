/* cuda_tuning.h: the autotuner's choices, cached in a file for the next start, or in memory for a run.
 *
 * ${XDG_CACHE_HOME:-$HOME/.cache}/amptrain/algorithms holds one choice a line. Any number of programs may use
 * it at once; a line that is damaged, or a file that cannot be read or written, is ignored. */
#pragma once

struct tuning;
struct text;

/* Reads the file. Never NULL. */
struct tuning *tuning_open(void);

/* One without a file, empty. */
struct tuning *tuning_new(void);

/* Keys and choices are one line each, and a key holds no '='. NULL: nothing is remembered; else it lives
 * until tuning_close. */
const char *tuning_find(const struct tuning *tuning, const char *key);
void tuning_set(struct tuning *tuning, const char *key, const char *choice);

/* All of it, as the file has it, in the order of keys; and such text taken up, where nothing was set here. */
void tuning_print(struct tuning *tuning, struct text *out);
void tuning_add(struct tuning *tuning, const char *lines);

/* Writes what was set into the file, if there is one, beside what others have written meanwhile. */
void tuning_close(struct tuning *tuning);
