#include "data/formats/gzip_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/host.h"
#include "base/memory.h"

/* Deflate cannot do better than this (zlib's technical notes: 1032 to 1). */
#define DEFLATE_RATIO_MAX 1032

static gzFile open_regular(const char *path, uint64_t *most, struct reason *reason)
{
    struct stat stat_of;
    if (stat(path, &stat_of) != 0) {
        because_of(reason, path, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(stat_of.st_mode)) {
        because_of(reason, path, "not a regular file");
        return NULL;
    }
    gzFile gz = gzopen(path, "rbe");
    if (!gz) {
        because_of(reason, path, strerror(errno));
        return NULL;
    }
    gzbuffer(gz, 1 << 17);
    *most = (uint64_t)stat_of.st_size * (gzdirect(gz) ? 1 : DEFLATE_RATIO_MAX);
    return gz;
}

bool gzip_file_open(const char *dir, const char *name, struct gzip_file *file, struct reason *reason)
{
    char *plain = dir ? text_format("%s/%s", dir, name) : text_copy(name);
    char *zipped = text_format("%s.gz", plain);
    struct stat stat_of;
    bool there = stat(plain, &stat_of) == 0;
    *file = (struct gzip_file){0};
    file->path = there || stat(zipped, &stat_of) != 0 ? plain : zipped;
    free(file->path == plain ? zipped : plain);
    file->gz = open_regular(file->path, &file->most, reason);
    if (!file->gz) gzip_file_close(file);
    return file->gz != NULL;
}

static bool broken(struct gzip_file *file, struct reason *reason)
{
    int code = Z_OK;
    const char *message = gzerror(file->gz, &code);
    if (code == Z_ERRNO) message = strerror(errno);
    if (code == Z_OK || code == Z_BUF_ERROR) message = "truncated";
    if (code == Z_DATA_ERROR) message = "corrupt gzip data";
    return because_of(reason, file->path, message);
}

/* At the end of reading: the gzip stream may be truncated there, without its checksum. */
static bool is_ended(struct gzip_file *file, int got, struct reason *reason)
{
    int code = Z_OK;
    gzerror(file->gz, &code);
    return (got == 0 && code == Z_OK) || broken(file, reason);
}

bool gzip_file_read(struct gzip_file *file, void *bytes, size_t count, struct reason *reason)
{
    char *to = bytes;
    for (size_t done = 0; done < count;) {
        unsigned ask = count - done < 1u << 30 ? (unsigned)(count - done) : 1u << 30;
        int got = gzread(file->gz, to + done, ask);
        if (got <= 0) return broken(file, reason);
        done += (size_t)got;
    }
    return true;
}

bool gzip_file_rest(struct gzip_file *file, size_t offset, uint64_t count, uint8_t **bytes,
                    struct reason *reason)
{
    if (count > file->most || offset > file->most - count)
        return because(reason, "%s: truncated: its header promises %llu bytes", file->path,
                       (unsigned long long)(offset + count));
    size_t available, total;
    host_memory(&available, &total);
    uint8_t *memory = available == 0 || count < available ? malloc(count ? count : 1) : NULL;
    if (!memory)
        return because(reason, "%s: not enough memory for its %llu bytes", file->path,
                       (unsigned long long)count);
    bool good = gzip_file_read(file, memory, count, reason);
    if (good) {
        /* Reading to the end also makes zlib verify the checksum. */
        char more;
        int extra = gzread(file->gz, &more, 1);
        good = extra > 0 ? because_of(reason, file->path, "longer than its header claims")
                         : is_ended(file, extra, reason);
    }
    if (!good) {
        free(memory);
        return false;
    }
    *bytes = memory;
    return true;
}

bool gzip_file_text(struct gzip_file *file, char **text, size_t *count, struct reason *reason)
{
    size_t limit = 1 << 26, length = 0, room = 1 << 16;
    char *memory = memory_new(room, 1);
    int got;
    while ((got = gzread(file->gz, memory + length, (unsigned)(room - length - 1))) > 0) {
        length += (size_t)got;
        if (length > limit) break;
        if (length == room - 1) memory = memory_resize(memory, room *= 2, 1);
    }
    bool good = got > 0 ? because_of(reason, file->path, "over 64 MiB of text")
                        : is_ended(file, got, reason);
    if (!good) {
        free(memory);
        return false;
    }
    memory[length] = '\0';
    *text = memory;
    *count = length;
    return true;
}

void gzip_file_close(struct gzip_file *file)
{
    if (file->gz) gzclose(file->gz);
    free(file->path);
    *file = (struct gzip_file){0};
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
    struct gzip_file file;
    struct reason reason;
    char *text = NULL;
    size_t bytes;
    int found = 0;
    if (!gzip_file_open(dir, name, &file, &reason)) return 0;
    if (gzip_file_text(&file, &text, &bytes, &reason)) {
        char *rest = text, *line;
        while (found < count && (line = next_line(&rest))) names[found++] = text_copy(line);
    }
    free(text);
    gzip_file_close(&file);
    return found;
}

char **gzip_file_class_names(const char *dir, const char *name, int count)
{
    char **names = memory_new((size_t)count, sizeof *names);
    int found = name ? read_names(dir, name, names, count) : 0;
    if (found == count) return names;
    text_list_free(names, (size_t)found);
    return text_list(NULL, 0, count);
}
