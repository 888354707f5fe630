/* fuzz.h: what the fuzz targets share. A target is a file fuzz_NAME.c with libFuzzer's two functions; it ends
 * by a signal when what is wrong with an input is not said as it should be. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "base/status.h"

/* libFuzzer's; the first once, the other for every input. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Messages are dropped, but checked: a line must not steer a terminal. */
void fuzz_begin(void);

/* A folder of the process's own, removed when it ends. */
const char *fuzz_folder(void);
/* Writes FOLDER/NAME, and returns its path, which lives as long as the process. */
const char *fuzz_write(const char *name, const void *data, size_t size);

/* A promise that was not kept. */
#define fuzz_must(kept) ((kept) ? (void)0 : fuzz_broken(#kept, __FILE__, __LINE__))
_Noreturn void fuzz_broken(const char *promise, const char *file, int line);

/* True if it is good; if not, that somebody has reported it since the last call, with `name` in the text. */
bool fuzz_good(enum status status, const char *name);

/* Whatever was said and did not matter. */
void fuzz_forget(void);

/* A reason that was given is a text, not what memory held. */
void fuzz_check_reason(const struct reason *reason);
/* So that it can be checked: not what the last one was. */
struct reason fuzz_reason(void);

/* An input that is read as a script, byte by byte; zeros come when it has ended. */
struct fuzz_script {
    const uint8_t *at, *end;
};
uint8_t fuzz_byte(struct fuzz_script *script);
/* A number that may be trouble: `near`, or close to it, or at a limit, or any. */
uint64_t fuzz_number(struct fuzz_script *script, uint64_t near);

/* Random numbers that are a function of the input. */
struct random fuzz_random(const uint8_t *data, size_t size);
