#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/atomic_file.h"

/* Bytes of lines that wait to be written. */
#define PENDING_MAX ((size_t)64 << 20)

/* Where the last complete line ends; -1, and errno. */
static int64_t find_end(int file, int64_t size)
{
    char bytes[4096];
    while (size > 0) {
        int64_t from = size > (int64_t)sizeof bytes ? size - (int64_t)sizeof bytes : 0;
        ssize_t got = file_read(file, bytes, (size_t)(size - from), from);
        if (got < 0) return -1;
        for (ssize_t i = got; i > 0; i--)
            if (bytes[i - 1] == '\n') return from + i;
        size = from;
    }
    return 0;
}

static bool cut_torn(int file)
{
    int64_t size = lseek(file, 0, SEEK_END), end = size < 0 ? -1 : find_end(file, size);
    return end >= 0 && (end == size || ftruncate(file, end) == 0);
}

enum status metrics_open(const struct directory *in, const char *name, struct metrics *metrics)
{
    struct reason reason;
    int file = directory_file(in, name, O_RDWR | O_CREAT | O_APPEND, &reason);
    if (file < 0) return directory_refuse(in, name, reason.text);
    if (!cut_torn(file)) {
        enum status status = directory_refuse(in, name, strerror(errno));
        close(file);
        return status;
    }
    *metrics = (struct metrics){.path = directory_show(in, name), .file = file};
    return OK;
}

void metrics_close(struct metrics *metrics)
{
    if (!metrics->path) return;
    close(metrics->file);
    text_free(&metrics->pending);
    free(metrics->path);
    *metrics = (struct metrics){0};
}

/* Writes what is pending, all or nothing; false, and errno. */
static bool write_pending(struct metrics *metrics)
{
    struct text *pending = &metrics->pending;
    if (pending->length == 0) return true;
    int64_t end = lseek(metrics->file, 0, SEEK_END);
    if (end < 0) return false;
    if (!file_write(metrics->file, pending->data, pending->length, end)) {
        int why = errno;
        if (ftruncate(metrics->file, end) != 0) log_detail("%s: may end with an incomplete line",
                                                           metrics->path);
        errno = why;
        return false;
    }
    text_free(pending);
    return true;
}

static enum status refuse(const struct metrics *metrics)
{
    return fail(FAILED, "%s: cannot be written: %s", metrics->path, strerror(errno));
}

enum status metrics_line(struct metrics *metrics, const char *object)
{
    if (!metrics->path) return OK;
    bool waiting = metrics->pending.length > 0;
    text_add(&metrics->pending, "%s\n", object);
    if (write_pending(metrics)) return OK;
    if (metrics->pending.length > PENDING_MAX) return refuse(metrics);
    if (!waiting)
        log_warning("%s: cannot be written: %s; lines are buffered, and the run continues",
                    metrics->path, strerror(errno));
    return OK;
}

enum status metrics_sync(struct metrics *metrics)
{
    if (!metrics->path || (write_pending(metrics) && fsync(metrics->file) == 0)) return OK;
    return refuse(metrics);
}

/* The longest line has a figure for each class, of which there are a million at most (data.classes). */
#define LINE_ROOM ((size_t)1 << 24)

enum verdict { KEEP, BEYOND, BROKEN, ALWAYS };

static bool is_event(const json_t *object, const char *event)
{
    const char *is = json_string_value(json_object_get(object, "event"));
    return is && strcmp(is, event) == 0;
}

static bool exceeds(const json_t *object, const char *event, const char *key, int64_t limit)
{
    return is_event(object, event) && json_integer_value(json_object_get(object, key)) > limit;
}

static enum verdict judge(const char *line, size_t length, int64_t step, int64_t epoch)
{
    if (length == 0 || line[length - 1] != '\n') return BROKEN;
    json_t *object = json_loadb(line, length, 0, NULL);
    enum verdict verdict = json_is_object(object) ? KEEP : BROKEN;
    if (exceeds(object, "step", "step", step) || exceeds(object, "epoch", "epoch", epoch)) verdict = BEYOND;
    if (is_event(object, "eval")) verdict = ALWAYS;
    json_decref(object);
    return verdict;
}

/* The next line with its end; of one that is longer than any that is written, the beginning without an end.
 * 0: there is none. */
static size_t read_line(FILE *from, char *line)
{
    size_t length = 0;
    for (int byte; (byte = getc(from)) != EOF;) {
        if (length < LINE_ROOM) line[length++] = (char)byte;
        if (byte == '\n') break;
    }
    return length;
}

/* Copies the lines to keep. A line that is not an object was left by a crash; lines of separate evaluations
 * do not belong to the run. */
static bool copy_lines(FILE *from, FILE *to, int64_t step, int64_t epoch, int *dropped)
{
    char *line = memory_new(LINE_ROOM, 1);
    bool good = true, beyond = false;
    for (size_t length; good && (length = read_line(from, line)) > 0;) {
        enum verdict verdict = judge(line, length, step, epoch);
        beyond = beyond || verdict == BEYOND;
        if (verdict == BROKEN || (beyond && verdict != ALWAYS))
            ++*dropped;
        else
            good = fwrite(line, 1, length, to) == length;
    }
    free(line);
    return good && feof(from);
}

static enum status rewrite(const struct directory *in, const char *name, FILE *from, int64_t step,
                           int64_t epoch)
{
    struct atomic_file to;
    int dropped = 0;
    TRY(atomic_file_begin(in, name, &to));
    bool good = copy_lines(from, to.stream, step, epoch, &dropped);
    enum status status = good ? OK : directory_refuse(in, name, strerror(errno));
    if (good && dropped > 0) log_detail("%s: removed %d lines after the checkpoint", name, dropped);
    enum status ended = atomic_file_end(&to, good && dropped > 0);
    return status == OK ? ended : status;
}

/* Lines of a newer version may have a meaning that this one would destroy. */
static enum status check_version(FILE *from, const char *name)
{
    static const char start[] = "{\"event\":\"start\"";
    char *line = memory_new(LINE_ROOM, 1);
    json_int_t newest = 0;
    for (size_t length; (length = read_line(from, line)) > 0;) {
        if (length < strlen(start) || memcmp(line, start, strlen(start)) != 0) continue;
        json_t *object = json_loadb(line, length, 0, NULL);
        json_int_t version = json_integer_value(json_object_get(object, "format"));
        if (version > newest) newest = version;
        json_decref(object);
    }
    free(line);
    rewind(from);
    if (newest <= METRICS_VERSION) return OK;
    return fail(BAD_CHECKPOINT, "%s: has version %lld; this amptrain continues versions up to %d", name,
                (long long)newest, METRICS_VERSION);
}

enum status metrics_cut(const struct directory *in, const char *name, int64_t step, int64_t epoch)
{
    struct reason reason;
    FILE *from = directory_stream(in, name, "r", &reason);
    char *shown = directory_show(in, name);
    enum status status = OK;
    if (!from && reason.error != ENOENT) status = fail(FAILED, "%s: cannot be read: %s", shown, reason.text);
    if (from) status = check_version(from, shown);
    if (from && status == OK) status = rewrite(in, name, from, step, epoch);
    if (from) fclose(from);
    free(shown);
    return status;
}

bool metrics_ended(const struct directory *in, const char *name)
{
    static const char end[] = "{\"event\":\"end\"", eval[] = "{\"event\":\"eval\"";
    struct reason reason;
    FILE *from = directory_stream(in, name, "r", &reason);
    if (!from) return false;
    char *line = memory_new(LINE_ROOM, 1);
    bool ended = false;
    for (size_t length; (length = read_line(from, line)) > 0;) {
        bool whole = length >= sizeof eval && line[length - 1] == '\n';
        if (whole && memcmp(line, eval, sizeof eval - 1) == 0) continue;
        ended = whole && memcmp(line, end, sizeof end - 1) == 0 &&
                !memmem(line, length, "\"" END_NOT_FINITE "\"", strlen(END_NOT_FINITE) + 2);
    }
    free(line);
    fclose(from);
    return ended;
}
