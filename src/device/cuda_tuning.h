/* cuda_tuning.h: what timing has chosen, remembered in a file for the next start.
 *
 * ${XDG_CACHE_HOME:-$HOME/.cache}/amptrain/engines holds one choice a line. Any number of programs may use it
 * at once; a line that is damaged, or a file that cannot be read or written, is as if it were not there. */
#ifndef DEVICE_CUDA_TUNING_H
#define DEVICE_CUDA_TUNING_H

struct tuning;

/* Reads the file. Never NULL. */
struct tuning *tuning_open(void);

/* Keys and choices are one line each, and a key holds no '='. NULL: nothing is remembered; else it lives
 * until tuning_close. */
const char *tuning_find(const struct tuning *tuning, const char *key);
void tuning_set(struct tuning *tuning, const char *key, const char *choice);

/* Writes what was set into the file, beside what others have written meanwhile. */
void tuning_close(struct tuning *tuning);

#endif
