#include "device/cuda_tuning.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "base/text.h"

/* The file's lines: "0123abcd KEY=CHOICE", where the number is the CRC-32C of what follows the blank. */
#define CHECK_DIGITS 8
#define FILE_MAX_BYTES (64 << 20)

struct tuning_choice {
    char *line;              /* "KEY=CHOICE" */
    size_t key_length;
    bool fresh;              /* not yet in the file */
};

struct tuning {
    bool in_memory;
    char *folder, *file;     /* NULL: there is no place for it */
    struct tuning_choice *choices;
    int count;
};

static struct tuning_choice *choice_find(const struct tuning *tuning, const char *key, size_t length)
{
    for (int i = 0; i < tuning->count; i++)
        if (tuning->choices[i].key_length == length && memcmp(tuning->choices[i].line, key, length) == 0)
            return &tuning->choices[i];
    return NULL;
}

/* Takes over `line`. What was set here wins over what the file says. */
static void choice_put(struct tuning *tuning, char *line, bool fresh)
{
    size_t length = strcspn(line, "=");
    struct tuning_choice *old = choice_find(tuning, line, length);
    if (old && old->fresh && !fresh) {
        free(line);
        return;
    }
    if (old) free(old->line);
    else old = array_push(tuning->choices, tuning->count);
    *old = (struct tuning_choice){.line = line, .key_length = length, .fresh = fresh};
}

/* One line of the file, without its end. */
static void line_read(struct tuning *tuning, const char *line, size_t length)
{
    char *end;
    if (length <= CHECK_DIGITS) return;
    unsigned long check = strtoul(line, &end, 16);
    if (end != line + CHECK_DIGITS || *end != ' ') return;
    const char *rest = end + 1;
    size_t left = length - CHECK_DIGITS - 1;
    if (!memchr(rest, '=', left) || crc32c(0, rest, left) != (uint32_t)check) return;
    choice_put(tuning, text_format("%.*s", (int)left, rest), false);
}

void tuning_add(struct tuning *tuning, const char *lines)
{
    for (const char *end; (end = strchr(lines, '\n')); lines = end + 1)
        line_read(tuning, lines, (size_t)(end - lines));
}

static void tuning_read(struct tuning *tuning)
{
    struct reason unsaid;
    if (!tuning->file) return;
    FILE *file = directory_stream_within(&directory_working, tuning->file, "r", FILE_MAX_BYTES, &unsaid);
    if (!file) return;
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0) tuning_add(tuning, line);
    free(line);
    fclose(file);
}

struct tuning *tuning_open(void)
{
    struct tuning *tuning = memory_new(1, sizeof *tuning);
    tuning->folder = search_paths_cache();
    if (tuning->folder) tuning->file = text_format("%s/algorithms", tuning->folder);
    tuning_read(tuning);
    return tuning;
}

struct tuning *tuning_new(void)
{
    struct tuning *tuning = memory_new(1, sizeof *tuning);
    tuning->in_memory = true;
    return tuning;
}

const char *tuning_find(const struct tuning *tuning, const char *key)
{
    const struct tuning_choice *found = choice_find(tuning, key, strlen(key));
    return found ? found->line + found->key_length + 1 : NULL;
}

void tuning_set(struct tuning *tuning, const char *key, const char *choice)
{
    choice_put(tuning, text_format("%s=%s", key, choice), true);
}

static bool has_news(const struct tuning *tuning)
{
    for (int i = 0; i < tuning->count; i++)
        if (tuning->choices[i].fresh) return true;
    return false;
}

void tuning_print(struct tuning *tuning, struct text *out)
{
    size_t count = (size_t)tuning->count;
    if (count > 0) qsort(tuning->choices, count, sizeof *tuning->choices, text_compare);
    for (int i = 0; i < tuning->count; i++) {
        const char *line = tuning->choices[i].line;
        text_add(out, "%0*x %s\n", CHECK_DIGITS, (unsigned)crc32c(0, line, strlen(line)), line);
    }
}

static bool lines_write(struct tuning *tuning, FILE *file)
{
    struct text lines = {0};
    tuning_print(tuning, &lines);
    if (lines.data) fputs(lines.data, file);
    text_free(&lines);
    return !ferror(file);
}

/* All of it into a new file that takes the old one's place at once. */
static bool file_replace(struct tuning *tuning)
{
    char *temporary = text_format("%s.XXXXXX", tuning->file);
    int descriptor = mkstemp(temporary);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    bool written = file && lines_write(tuning, file);
    if (file) written = fclose(file) == 0 && written;
    else if (descriptor >= 0) close(descriptor);
    written = written && rename(temporary, tuning->file) == 0;
    if (!written && descriptor >= 0) unlink(temporary);
    free(temporary);
    return written;
}

/* One writer at a time reads what others have added and replaces the file. */
static bool tuning_write(struct tuning *tuning)
{
    struct reason unsaid;
    if (!tuning->file || !directory_make(tuning->folder, 0700, &unsaid)) return false;
    char *lock = text_format("%s.lock", tuning->file);
    int descriptor = directory_file(&directory_working, lock, O_CREAT | O_RDWR, &unsaid);
    free(lock);
    if (descriptor < 0) return false;
    bool written = flock(descriptor, LOCK_EX) == 0;
    if (written) {
        tuning_read(tuning);
        written = file_replace(tuning);
    }
    close(descriptor);
    return written;
}

void tuning_close(struct tuning *tuning)
{
    if (!tuning->in_memory && has_news(tuning) && !tuning_write(tuning))
        log_detail("%s cannot be written: the next start will autotune again",
                   tuning->file ? tuning->file : "a cache folder");
    for (int i = 0; i < tuning->count; i++) free(tuning->choices[i].line);
    free(tuning->choices);
    free(tuning->folder);
    free(tuning->file);
    free(tuning);
}
