#include "fuzz.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define PATH_ROOM 512
#define NAMES_MAX 16

/* State of the process. */
static struct {
    char folder[PATH_ROOM];
    char names[NAMES_MAX][2 * PATH_ROOM];      /* paths that were written */
    int name_count;
    char said[8192];                           /* since fuzz_good was last asked */
    int errors;
} fuzz;

/* The sanitizers ask for these. A report of theirs ends the target by a signal, as every other finding does,
 * whatever the environment says of exit statuses. */
#pragma GCC visibility push(default)
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "abort_on_error=1"; }
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "abort_on_error=1:halt_on_error=1"; }
#pragma GCC visibility pop

_Noreturn void fuzz_broken(const char *promise, const char *file, int line)
{
    dprintf(STDERR_FILENO, "%s:%d: not so: %s\nsaid:\n%s\n", file, line, promise, fuzz.said);
    abort();
}

static void hear(void *context, enum log_level level, const char *line)
{
    for (const char *c = line; *c; c++) fuzz_must((unsigned char)*c >= ' ' || *c == '\t' || *c == '\n');
    fuzz_must(strchr(line, 0x7f) == NULL);
    size_t length = strlen(fuzz.said);
    snprintf(fuzz.said + length, sizeof fuzz.said - length, "%s\n", line);
    fuzz.errors += level == LOG_ERROR;
}

static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *at)
{
    (void)is, (void)kind, (void)at;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(fuzz.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void fuzz_begin(void)
{
    /* The sanitizers write to the descriptor, the log to the stream. */
    FILE *nowhere = fopen("/dev/null", "w");
    if (nowhere) stderr = nowhere;
    log_set_sink((struct log_sink){hear, NULL});
}

const char *fuzz_folder(void)
{
    if (fuzz.folder[0]) return fuzz.folder;
    const char *temporary = getenv("TMPDIR");
    snprintf(fuzz.folder, sizeof fuzz.folder, "%s/fuzz.XXXXXX", temporary ? temporary : "/tmp");
    fuzz_must(mkdtemp(fuzz.folder));
    atexit(remove_folder);
    return fuzz.folder;
}

static const char *path_of(const char *name)
{
    char path[2 * PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    for (int i = 0; i < fuzz.name_count; i++)
        if (strcmp(fuzz.names[i], path) == 0) return fuzz.names[i];
    fuzz_must(fuzz.name_count < NAMES_MAX);
    return memcpy(fuzz.names[fuzz.name_count++], path, sizeof path);
}

const char *fuzz_write(const char *name, const void *data, size_t size)
{
    const char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    fuzz_must(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    return path;
}

void fuzz_forget(void)
{
    fuzz.said[0] = '\0';
    fuzz.errors = 0;
}

bool fuzz_good(enum status status, const char *name)
{
    if (status != OK) {
        fuzz_must(fuzz.errors > 0);
        fuzz_must(strstr(fuzz.said, name));
    } else {
        fuzz_must(fuzz.errors == 0);
    }
    fuzz_forget();
    return status == OK;
}

struct reason fuzz_reason(void)
{
    struct reason reason;
    memset(reason.text, 0x5a, sizeof reason.text);
    return reason;
}

void fuzz_check_reason(const struct reason *reason)
{
    size_t length = strnlen(reason->text, sizeof reason->text);
    fuzz_must(length > 0 && length < sizeof reason->text);
}

struct random fuzz_random(const uint8_t *data, size_t size)
{
    return random_open(crc32c(0, data, size), PURPOSE_TEST, 0, 0);
}

uint8_t fuzz_byte(struct fuzz_script *script) { return script->at < script->end ? *script->at++ : 0; }

uint64_t fuzz_number(struct fuzz_script *script, uint64_t near)
{
    uint64_t value = 0;
    uint8_t kind = fuzz_byte(script);
    if (kind < 0xa0) return near;
    switch (kind % 6) {
    case 0: return near + (uint64_t)(int8_t)fuzz_byte(script);
    case 1: return fuzz_byte(script);
    case 2: return UINT64_MAX - fuzz_byte(script);
    case 3: return UINT64_C(1) << fuzz_byte(script) % 64;
    case 4: return near << fuzz_byte(script) % 64;
    default:
        for (int i = 0; i < 8; i++) value = value << 8 | fuzz_byte(script);
        return value;
    }
}
