/* checkpoint_newest.c: which checkpoint of a folder a run goes on from. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/checkpoint.h"
#include "train/durable.h"

/* No run writes as many. */
#define SERIAL_MAX ((int64_t)1 << 40)

bool checkpoint_read_serial(const struct safetensors *file, int64_t *serial)
{
    const char *text = safetensors_value(file, "serial");
    char *end = NULL;
    long long number = text ? strtoll(text, &end, 10) : 0;
    if (text && (end == text || *end != '\0' || number < 1 || number > SERIAL_MAX)) return false;
    *serial = number;
    return true;
}

int64_t checkpoint_serial(const char *path)
{
    struct safetensors file;
    struct reason reason;
    int64_t serial = -1;
    if (!safetensors_open(path, &file, &reason)) return -1;
    if (!checkpoint_read_serial(&file, &serial)) serial = -1;
    safetensors_close(&file);
    return serial;
}

/* A link that leads nowhere is there too: it stands where a checkpoint was. */
static bool there(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

bool checkpoint_exists(const char *folder)
{
    static const char *const names[] = {CHECKPOINT_LAST, CHECKPOINT_PREVIOUS, CHECKPOINT_BEST};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = durable_path(folder, names[i]);
        bool exists = there(path);
        free(path);
        if (exists) return true;
    }
    return false;
}

/* Gives an unusable file another name, at which one that stands there already gives way. */
static enum status set_aside(const char *path, const char *folder)
{
    if (!there(path)) return OK;
    char *aside = durable_path(folder, CHECKPOINT_UNUSABLE);
    remove(aside);
    enum status status = durable_rename(path, aside);
    if (status == OK) log_warning("%s is kept as %s", path, aside);
    free(aside);
    return status;
}

/* Only what a file holds shows that it is no good, or that there is none; one that cannot be read now may be
 * the best there is. */
static bool is_unknown(const struct reason *reason)
{
    return reason->error != 0 && reason->error != ENOENT && reason->error != ELOOP;
}

static enum status refuse_unknown(const char *path, const struct reason *reason)
{
    return fail(FAILED, "%s %s; it may be good: see to it that it can be read, or move it away to go on from an "
                "older one", path, reason->text);
}

/* The previous one; or the best one, which is all there is where a run ended in the midst of its
 * first save. */
static enum status open_other(const char *folder, const char *last, const char *previous,
                              const struct reason *why, struct safetensors *file)
{
    struct reason reason, unused;
    if (is_unknown(why)) return refuse_unknown(last, why);
    log_warning("%s %s", last, why->text);
    char *best = durable_path(folder, CHECKPOINT_BEST);
    const char *found = NULL;
    enum status status = OK;
    if (checkpoint_open(previous, file, &reason))
        found = previous;
    else if (!is_unknown(&reason) && checkpoint_open(best, file, &unused))
        found = best;
    if (found)
        log_warning("resuming from %s instead", found);
    else if (is_unknown(&reason))
        status = refuse_unknown(previous, &reason);
    else
        status = fail(BAD_CHECKPOINT, "%s %s; there is no good checkpoint to resume from", previous,
                      reason.text);
    if (found) status = set_aside(last, folder);
    if (found && status != OK) safetensors_close(file);
    free(best);
    return status;
}

/* The last one is good, but the previous one was written after it: somebody has exchanged them. */
static void take_newer(const char *last, const char *previous, struct safetensors *file)
{
    struct safetensors newer;
    struct reason reason;
    if (checkpoint_serial(previous) <= checkpoint_serial(last)) return;
    log_warning("%s was written before %s", last, previous);
    if (!checkpoint_open(previous, &newer, &reason)) {
        log_warning("%s %s", previous, reason.text);
        return;
    }
    log_warning("resuming from %s instead", previous);
    safetensors_close(file);
    *file = newer;
}

enum status checkpoint_open_newest(const char *folder, struct safetensors *file)
{
    char *last = durable_path(folder, CHECKPOINT_LAST);
    char *previous = durable_path(folder, CHECKPOINT_PREVIOUS);
    struct reason reason;
    enum status status = OK;
    if (!checkpoint_exists(folder))
        status = fail(BAD_CHECKPOINT, "%s: there is no checkpoint to resume from", folder);
    else if (checkpoint_open(last, file, &reason))
        take_newer(last, previous, file);
    else
        status = open_other(folder, last, previous, &reason, file);
    free(previous);
    free(last);
    return status;
}
