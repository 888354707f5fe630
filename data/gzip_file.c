#include "data/gzip_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/memory.h"

/* Deflate cannot do better than this (zlib's technical notes: 1032 to 1). */
#define DEFLATE_RATIO_MAX 1032

static gzFile open_regular(const char *path, uint64_t *most, struct reason *reason)
{
    struct stat stat_of;
    if (stat(path, &stat_of) != 0) {
        because(reason, "%s: %s", path, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(stat_of.st_mode)) {
        because(reason, "%s: not a regular file", path);
        return NULL;
    }
    gzFile gz = gzopen(path, "rbe");
    if (!gz) {
        because(reason, "%s: %s", path, strerror(errno));
        return NULL;
    }
    gzbuffer(gz, 1 << 17);
    *most = (uint64_t)stat_of.st_size * (gzdirect(gz) ? 1 : DEFLATE_RATIO_MAX);
    return gz;
}

bool whole_open(const char *dir, const char *name, struct whole *whole, struct reason *reason)
{
    char *plain = dir ? text_format("%s/%s", dir, name) : text_copy(name);
    char *zipped = text_format("%s.gz", plain);
    struct stat stat_of;
    bool there = stat(plain, &stat_of) == 0;
    *whole = (struct whole){0};
    whole->path = there || stat(zipped, &stat_of) != 0 ? plain : zipped;
    free(whole->path == plain ? zipped : plain);
    whole->gz = open_regular(whole->path, &whole->most, reason);
    if (!whole->gz) whole_close(whole);
    return whole->gz != NULL;
}

static bool broken(struct whole *whole, struct reason *reason)
{
    int code = Z_OK;
    const char *message = gzerror(whole->gz, &code);
    if (code == Z_ERRNO) message = strerror(errno);
    if (code == Z_OK || code == Z_BUF_ERROR) message = "truncated";
    if (code == Z_DATA_ERROR) message = "corrupt: not what gzip wrote";
    return because(reason, "%s: %s", whole->path, message);
}

/* After reading has given nothing. What gzip wrote may be cut off there, and its checksum with it. */
static bool is_ended(struct whole *whole, int got, struct reason *reason)
{
    int code = Z_OK;
    gzerror(whole->gz, &code);
    return (got == 0 && code == Z_OK) || broken(whole, reason);
}

bool whole_read(struct whole *whole, void *bytes, size_t count, struct reason *reason)
{
    char *to = bytes;
    for (size_t done = 0; done < count;) {
        unsigned ask = count - done < 1u << 30 ? (unsigned)(count - done) : 1u << 30;
        int got = gzread(whole->gz, to + done, ask);
        if (got <= 0) return broken(whole, reason);
        done += (size_t)got;
    }
    return true;
}

bool whole_rest(struct whole *whole, size_t offset, uint64_t count, uint8_t **bytes, struct reason *reason)
{
    if (count > whole->most || offset > whole->most - count)
        return because(reason, "%s: truncated: its header promises %llu bytes", whole->path,
                       (unsigned long long)(offset + count));
    uint8_t *memory = malloc(count ? count : 1);
    if (!memory)
        return because(reason, "%s: no memory for its %llu bytes", whole->path, (unsigned long long)count);
    bool good = whole_read(whole, memory, count, reason);
    if (good) {
        /* Reading on to the end is also what makes zlib compare the checksum. */
        char more;
        int extra = gzread(whole->gz, &more, 1);
        good = extra > 0 ? because(reason, "%s: longer than its header says", whole->path)
                         : is_ended(whole, extra, reason);
    }
    if (!good) {
        free(memory);
        return false;
    }
    *bytes = memory;
    return true;
}

bool whole_text(struct whole *whole, char **text, size_t *count, struct reason *reason)
{
    size_t limit = 1 << 26, length = 0, room = 1 << 16;
    char *memory = memory_new(room, 1);
    int got;
    while ((got = gzread(whole->gz, memory + length, (unsigned)(room - length - 1))) > 0) {
        length += (size_t)got;
        if (length > limit) break;
        if (length == room - 1) memory = memory_resize(memory, room *= 2, 1);
    }
    bool good = got > 0 ? because(reason, "%s: over 64 MiB of text", whole->path)
                        : is_ended(whole, got, reason);
    if (!good) {
        free(memory);
        return false;
    }
    memory[length] = '\0';
    *text = memory;
    *count = length;
    return true;
}

void whole_close(struct whole *whole)
{
    if (whole->gz) gzclose(whole->gz);
    free(whole->path);
    *whole = (struct whole){0};
}

/* The next non-empty line of *text, without blanks at its end; NULL when there is none. */
static char *next_line(char **text)
{
    char *line = *text + strspn(*text, " \t\r\n");
    if (*line == '\0') return NULL;
    char *end = line + strcspn(line, "\n");
    *text = *end ? end + 1 : end;
    while (end > line && strchr(" \t\r\n", end[-1])) end--;
    *end = '\0';
    return line;
}

static int read_names(const char *dir, const char *name, char **names, int count)
{
    struct whole whole;
    struct reason reason;
    char *text = NULL;
    size_t bytes;
    int found = 0;
    if (!whole_open(dir, name, &whole, &reason)) return 0;
    if (whole_text(&whole, &text, &bytes, &reason)) {
        char *rest = text, *line;
        while (found < count && (line = next_line(&rest))) names[found++] = text_copy(line);
    }
    free(text);
    whole_close(&whole);
    return found;
}

char **whole_class_names(const char *dir, const char *name, int count)
{
    char **names = memory_new((size_t)count, sizeof *names);
    int found = name ? read_names(dir, name, names, count) : 0;
    if (found == count) return names;
    for (int i = 0; i < count; i++) {
        free(names[i]);
        names[i] = text_format("%d", i);
    }
    return names;
}
