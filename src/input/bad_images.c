#include "input/bad_images.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define WARNINGS 20            /* more would hide everything else that is said */

struct bad_source {
    struct bad_images *all;
    const char *name;
    const struct dataset *dataset;
    uint8_t *known;            /* a bit for every image; NULL: none was bad yet */
    bool *held;                /* [dataset->count] that are held out for validation; NULL: none */
};

struct bad_images {
    bool warn;
    pthread_mutex_t lock;      /* over all that follows */
    struct bad_source sources[2];      /* by enum split */
    int64_t count;             /* of both */
    int warnings;
    const struct directory *in;
    char *name;                /* of the file there; NULL: they are not listed */
    FILE *file;                /* NULL: not opened yet */
    bool shared;
    struct text waiting;       /* lines for other ranks */
};

struct bad_images *bad_images_new(const struct dataset datasets[2], bool warn)
{
    struct bad_images *bad = memory_new(1, sizeof *bad);
    bad->warn = warn;
    bad->sources[SPLIT_TRAIN] = (struct bad_source){bad, "train", &datasets[SPLIT_TRAIN], NULL, NULL};
    bad->sources[SPLIT_VAL] = (struct bad_source){bad, "val", &datasets[SPLIT_VAL], NULL, NULL};
    pthread_mutex_init(&bad->lock, NULL);
    return bad;
}

void bad_images_free(struct bad_images *bad)
{
    if (!bad) return;
    if (bad->file) fclose(bad->file);
    pthread_mutex_destroy(&bad->lock);
    for (int i = 0; i < 2; i++) free(bad->sources[i].known);
    free(bad->sources[SPLIT_TRAIN].held);
    text_free(&bad->waiting);
    free(bad->name);
    free(bad);
}

void bad_images_hold_out(struct bad_images *bad, const bool *held, int64_t count)
{
    bool *copy = bad->sources[SPLIT_TRAIN].held = memory_new((size_t)count, sizeof *copy);
    memcpy(copy, held, (size_t)count * sizeof *copy);
}

static const char *name_of(const struct bad_source *source, int64_t index)
{
    return source->held && source->held[index] ? "val" : source->name;
}

struct bad_source *bad_images_source(struct bad_images *bad, const struct dataset *dataset)
{
    return &bad->sources[bad->sources[SPLIT_VAL].dataset == dataset ? SPLIT_VAL : SPLIT_TRAIN];
}

/* Notes an image; false: it was known. */
static bool note(struct bad_source *source, int64_t index)
{
    if (!source->known) source->known = memory_new((size_t)source->dataset->count / 8 + 1, 1);
    uint8_t *byte = &source->known[index >> 3], bit = (uint8_t)(1 << (index & 7));
    bool known = *byte & bit;
    *byte |= bit;
    source->all->count += !known;
    return !known;
}

bool bad_images_known(const struct bad_source *source, int64_t index)
{
    struct bad_images *bad = source->all;
    pthread_mutex_lock(&bad->lock);
    bool known = source->known && (source->known[index >> 3] >> (index & 7) & 1);
    pthread_mutex_unlock(&bad->lock);
    return known;
}

static char *path_of(const struct bad_source *source, int64_t index)
{
    char *path = dataset_image_path(source->dataset, index);
    return path ? path : text_copy("");
}

/* Tabs and newlines in paths would be confused with the separators of fields and lines. */
static void add_field(struct text *line, const char *value, char end)
{
    for (; *value; value++) {
        if (*value == '\t') text_add(line, "\\t");
        else if (*value == '\n') text_add(line, "\\n");
        else text_add(line, "%c", *value);
    }
    text_add(line, "%c", end);
}

/* The fields that identify an image. */
static void add_name(struct text *line, const struct bad_source *source, int64_t index)
{
    char *path = path_of(source, index);
    text_add(line, "%s\t%" PRId64 "\t", name_of(source, index), index);
    add_field(line, path, '\t');
    free(path);
}

/* Reasons name the image, as its own field does. */
static const char *without_path(const struct bad_source *source, int64_t index, const char *why)
{
    char *path = path_of(source, index);
    size_t length = strlen(path);
    bool named = length > 0 && strncmp(why, path, length) == 0 && strncmp(why + length, ": ", 2) == 0;
    free(path);
    return named ? why + length + 2 : why;
}

/* If the list cannot be written, the image has been reported all the same, and the run continues. */
static void list(struct bad_images *bad, const struct text *line)
{
    struct reason reason;
    if (!bad->name) return;
    if (!bad->file) bad->file = directory_stream(bad->in, bad->name, "a", &reason);
    if (bad->file && fwrite(line->data, 1, line->length, bad->file) == line->length && fflush(bad->file) == 0)
        return;
    log_warning("%s/%s: cannot be written: %s; no more images are listed there", bad->in->path, bad->name,
                bad->file ? strerror(errno) : reason.text);
    free(bad->name);
    bad->name = NULL;
}

static void warn(struct bad_images *bad, const char *why)
{
    bool shown = bad->warn && bad->warnings < WARNINGS;
    log_line(shown ? LOG_WARNING : LOG_DETAIL, "%s", why);
    if (shown && ++bad->warnings == WARNINGS)
        log_warning("%d unusable images so far; more are listed in the run folder, and shown with -v only",
                    WARNINGS);
}

void bad_images_report(void *context, int64_t index, const char *why)
{
    struct bad_source *source = context;
    struct bad_images *bad = source->all;
    pthread_mutex_lock(&bad->lock);
    if (note(source, index)) {
        struct text line = {0};
        warn(bad, why);
        add_name(&line, source, index);
        add_field(&line, without_path(source, index, why), '\n');
        list(bad, &line);
        if (bad->shared) text_add(&bad->waiting, "%s", line.data);
        text_free(&line);
    }
    pthread_mutex_unlock(&bad->lock);
}

/* Adds a line if it belongs to this source; false: it does not, or the image was known. A resumed run has the
 * same data (dataset_identity.h), maybe at another path: the index tells which image it is. */
static bool recall(struct bad_source *source, const char *line)
{
    const char *tab = strchr(line, '\t');
    char *end;
    if (!source->dataset->format || !tab) return false;
    int64_t index = strtoll(tab, &end, 10);
    if (*end != '\t' || index < 0 || index >= source->dataset->count) return false;
    const char *name = name_of(source, index);
    bool mine = strlen(name) == (size_t)(tab - line) && strncmp(line, name, strlen(name)) == 0;
    return mine && note(source, index);
}

/* Adds the lines of a file, and removes an incomplete last line. */
static void recall_all(struct bad_images *bad, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    off_t end = 0;
    ssize_t length;
    while ((length = getline(&line, &room, file)) > 0 && line[length - 1] == '\n') {
        for (int i = 0; i < 2; i++)
            if (recall(&bad->sources[i], line) && bad->shared) text_add(&bad->waiting, "%s", line);
        end += length;
    }
    free(line);
    if (ftruncate(fileno(file), end) != 0)
        log_warning("%s: cannot be written: %s", bad->name, strerror(errno));
}

void bad_images_list(struct bad_images *bad, const struct directory *in, const char *name)
{
    struct reason reason;
    pthread_mutex_lock(&bad->lock);
    bad->in = in;
    bad->name = text_copy(name);
    FILE *file = directory_stream_within(in, name, "r+", 1 << 30, &reason);
    if (file) {
        recall_all(bad, file);
        fclose(file);
    }
    pthread_mutex_unlock(&bad->lock);
}

int64_t bad_images_count(struct bad_images *bad)
{
    pthread_mutex_lock(&bad->lock);
    int64_t count = bad->count;
    pthread_mutex_unlock(&bad->lock);
    return count;
}

void bad_images_share(struct bad_images *bad)
{
    pthread_mutex_lock(&bad->lock);
    bad->shared = true;
    pthread_mutex_unlock(&bad->lock);
}

bool bad_images_pending(struct bad_images *bad)
{
    pthread_mutex_lock(&bad->lock);
    bool wait = bad->waiting.length > 0;
    pthread_mutex_unlock(&bad->lock);
    return wait;
}

char *bad_images_collect(struct bad_images *bad)
{
    pthread_mutex_lock(&bad->lock);
    char *lines = bad->waiting.data;
    bad->waiting = (struct text){0};
    pthread_mutex_unlock(&bad->lock);
    return lines;
}

void bad_images_add(struct bad_images *bad, const char *lines)
{
    pthread_mutex_lock(&bad->lock);
    for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
        struct text line = {0};
        text_add(&line, "%.*s\n", (int)(end - lines), lines);
        for (int i = 0; i < 2; i++)
            if (recall(&bad->sources[i], line.data)) list(bad, &line);
        text_free(&line);
    }
    pthread_mutex_unlock(&bad->lock);
}
