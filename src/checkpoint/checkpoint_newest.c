/* checkpoint_newest.c: finds the checkpoint of a folder from which a run is resumed. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "base/atomic_file.h"

int64_t checkpoint_serial(const struct directory *in, const char *name)
{
    struct safetensors file;
    struct reason reason;
    int64_t serial = -1;
    if (!safetensors_open_in(in, name, &file, &reason)) return -1;
    if (!checkpoint_read_serial(&file, &serial)) serial = -1;
    safetensors_close(&file);
    return serial;
}

bool checkpoint_exists(const struct directory *folder)
{
    return directory_has(folder, CHECKPOINT_LAST) || directory_has(folder, CHECKPOINT_PREVIOUS) ||
           directory_has(folder, CHECKPOINT_BEST);
}

/* Renames an unusable last checkpoint, replacing an existing file of that name. */
static enum status set_aside(const struct directory *folder)
{
    static const char last[] = CHECKPOINT_LAST, aside[] = CHECKPOINT_UNUSABLE;
    if (!directory_has(folder, last)) return OK;
    directory_remove(folder, aside);
    unlinkat(folder->file, aside, AT_REMOVEDIR);
    enum status status = atomic_file_rename(folder, last, aside);
    if (status == OK) log_warning("%s/%s was renamed to %s", folder->path, last, aside);
    return status;
}

/* A checkpoint is rejected only for its content, or if it does not exist; one that cannot be read at the
 * moment may be valid. */
static bool is_unknown(const struct reason *reason)
{
    return reason->error != 0 && reason->error != ENOENT && reason->error != ELOOP;
}

static enum status refuse_unknown(const struct directory *folder, const char *name,
                                  const struct reason *reason)
{
    return fail(FAILED, "%s/%s %s; it may be valid: make it readable, or move it away to resume from an "
                "older one", folder->path, name, reason->text);
}

/* The previous one; or the best one, which is the only one if a run ended during its first save. */
static enum status open_other(const struct directory *folder, const struct reason *why,
                              struct safetensors *file)
{
    struct reason reason, unused;
    if (is_unknown(why)) return refuse_unknown(folder, CHECKPOINT_LAST, why);
    log_warning("%s/%s %s", folder->path, CHECKPOINT_LAST, why->text);
    const char *found = NULL;
    if (checkpoint_open(folder, CHECKPOINT_PREVIOUS, file, &reason))
        found = CHECKPOINT_PREVIOUS;
    else if (is_unknown(&reason))
        return refuse_unknown(folder, CHECKPOINT_PREVIOUS, &reason);
    else if (checkpoint_open(folder, CHECKPOINT_BEST, file, &unused))
        found = CHECKPOINT_BEST;
    if (!found)
        return fail(BAD_CHECKPOINT, "%s/%s %s; there is no valid checkpoint to resume from", folder->path,
                    CHECKPOINT_PREVIOUS, reason.text);
    log_warning("resuming from %s/%s instead", folder->path, found);
    enum status status = set_aside(folder);
    if (status != OK) safetensors_close(file);
    return status;
}

/* The last one is valid, but the previous one was written after it: the files were swapped. */
static void take_newer(const struct directory *folder, struct safetensors *file)
{
    static const char last[] = CHECKPOINT_LAST, previous[] = CHECKPOINT_PREVIOUS;
    struct safetensors newer;
    struct reason reason;
    int64_t serial = 0;
    checkpoint_read_serial(file, &serial);
    if (checkpoint_serial(folder, previous) <= serial) return;
    log_warning("%s/%s was written before %s", folder->path, last, previous);
    if (!checkpoint_open(folder, previous, &newer, &reason)) {
        log_warning("%s/%s %s", folder->path, previous, reason.text);
        return;
    }
    log_warning("resuming from %s/%s instead", folder->path, previous);
    safetensors_close(file);
    *file = newer;
}

enum status checkpoint_open_newest(const struct directory *folder, struct safetensors *file)
{
    struct reason reason;
    if (!checkpoint_exists(folder))
        return fail(BAD_CHECKPOINT, "%s: there is no checkpoint to resume from", folder->path);
    if (!checkpoint_open(folder, CHECKPOINT_LAST, file, &reason)) return open_other(folder, &reason, file);
    take_newer(folder, file);
    return OK;
}
