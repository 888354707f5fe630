#include "train/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/durable.h"

enum status metrics_open(const char *path, struct metrics *metrics)
{
    FILE *file = fopen(path, "ae");
    if (!file) return fail(FAILED, "%s: cannot be written: %s", path, strerror(errno));
    *metrics = (struct metrics){file, text_copy(path)};
    return OK;
}

void metrics_close(struct metrics *metrics)
{
    if (!metrics->file) return;
    fclose(metrics->file);
    free(metrics->path);
    *metrics = (struct metrics){0};
}

enum status metrics_line(struct metrics *metrics, const char *object)
{
    if (fprintf(metrics->file, "%s\n", object) < 0 || fflush(metrics->file) != 0)
        return fail(FAILED, "%s: cannot be written: %s", metrics->path, strerror(errno));
    return OK;
}

enum status metrics_sync(struct metrics *metrics)
{
    if (fflush(metrics->file) != 0 || fsync(fileno(metrics->file)) != 0)
        return fail(FAILED, "%s: cannot be written: %s", metrics->path, strerror(errno));
    return OK;
}

/* Lines are much shorter. */
#define LINE_ROOM ((size_t)1 << 16)

enum verdict { KEEP, BEYOND, BROKEN };

static bool exceeds(const json_t *object, const char *event, const char *key, int64_t limit)
{
    const char *is = json_string_value(json_object_get(object, "event"));
    return is && strcmp(is, event) == 0 && json_integer_value(json_object_get(object, key)) > limit;
}

static enum verdict judge(const char *line, size_t length, int64_t step, int64_t epoch)
{
    if (length == 0 || line[length - 1] != '\n') return BROKEN;
    json_t *object = json_loadb(line, length, 0, NULL);
    enum verdict verdict = json_is_object(object) ? KEEP : BROKEN;
    if (exceeds(object, "step", "step", step) || exceeds(object, "epoch", "epoch", epoch)) verdict = BEYOND;
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

/* Copies the lines that stay. A line that is not an object can only be what a crash left behind. */
static bool copy_lines(FILE *from, FILE *to, int64_t step, int64_t epoch, int *dropped)
{
    char *line = memory_new(LINE_ROOM, 1);
    bool good = true, beyond = false;
    for (size_t length; good && (length = read_line(from, line)) > 0;) {
        enum verdict verdict = judge(line, length, step, epoch);
        beyond = beyond || verdict == BEYOND;
        if (beyond || verdict == BROKEN)
            ++*dropped;
        else
            good = fwrite(line, 1, length, to) == length;
    }
    free(line);
    return good && feof(from);
}

static enum status rewrite(FILE *from, const char *path, const char *temporary, int64_t step, int64_t epoch)
{
    FILE *to = fopen(temporary, "we");
    if (!to) return fail(FAILED, "%s: cannot be written: %s", temporary, strerror(errno));
    int dropped = 0;
    bool good = copy_lines(from, to, step, epoch, &dropped);
    good = good && fflush(to) == 0 && fsync(fileno(to)) == 0;
    int why = errno;
    if (fclose(to) != 0 && good) good = false, why = errno;
    if (!good) return fail(FAILED, "%s: cannot be written: %s", temporary, strerror(why));
    if (dropped > 0) log_detail("%s: %d lines beyond the checkpoint cut off", path, dropped);
    return dropped > 0 ? durable_rename(temporary, path) : OK;
}

/* A run whose lines a newer version wrote may have said what this one would spoil. */
static enum status check_version(FILE *from, const char *path)
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
    return fail(BAD_CHECKPOINT, "%s: is of version %lld; this amptrain goes on with up to version %d", path,
                (long long)newest, METRICS_VERSION);
}

enum status metrics_cut(const char *path, int64_t step, int64_t epoch)
{
    FILE *from = fopen(path, "re");
    if (!from && errno == ENOENT) return OK;
    if (!from) return fail(FAILED, "%s: cannot be read: %s", path, strerror(errno));
    char *temporary = text_format("%s.tmp", path);
    enum status status = check_version(from, path);
    if (status == OK) status = rewrite(from, path, temporary, step, epoch);
    fclose(from);
    unlink(temporary);
    free(temporary);
    return status;
}

void metrics_begin(struct text *object, const char *event)
{
    text_add(object, "{\"event\":\"%s\"", event);
}

static void add_key(struct text *object, const char *key)
{
    text_add(object, ",\"%s\":", key);
}

void metrics_integer(struct text *object, const char *key, int64_t value)
{
    add_key(object, key);
    text_add(object, "%" PRId64, value);
}

void metrics_number(struct text *object, const char *key, double value)
{
    add_key(object, key);
    text_json_number(object, value);
}

void metrics_text(struct text *object, const char *key, const char *value)
{
    add_key(object, key);
    text_json_string(object, value);
}

void metrics_end(struct text *object)
{
    text_add(object, "}");
}
