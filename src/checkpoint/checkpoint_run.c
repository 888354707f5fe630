/* checkpoint_run.c: which run a checkpoint belongs to. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"

enum status checkpoint_new_run(char run[CHECKPOINT_RUN])
{
    unsigned char bytes[CHECKPOINT_RUN / 2];
    if (getentropy(bytes, sizeof bytes) != 0)
        return fail(FAILED, "no random number for the run's identity: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(run + 2 * i, 3, "%02x", bytes[i]);
    return OK;
}

const char *checkpoint_run(const struct safetensors *file)
{
    const char *run = safetensors_value(file, "run");
    return run && strlen(run) == CHECKPOINT_RUN - 1 ? run : NULL;
}

static long best_epoch(const struct safetensors *file)
{
    const char *text = safetensors_value(file, "position.best_epoch");
    return text ? atol(text) : 0;
}

static void warn_of_later_best(const struct safetensors *file, const struct safetensors *best)
{
    if (best_epoch(best) > best_epoch(file))
        log_warning("%s: of epoch %ld, which %s has not reached: it stays until a better epoch replaces it",
                    best->path, best_epoch(best), file->path);
}

static enum status match_one(const struct safetensors *file, const struct directory *folder, const char *name)
{
    struct safetensors other;
    struct reason reason;
    const char *run = checkpoint_run(file);
    if (!safetensors_open_in(folder, name, &other, &reason)) return OK;
    const char *its = checkpoint_run(&other);
    enum status status = OK;
    if (run && its && strcmp(run, its) != 0)
        status = fail(USAGE, "%s/%s: belongs to another run than %s, which cannot go on in this folder: name "
                      "another one with -o", folder->path, name, file->path);
    else if (strcmp(name, CHECKPOINT_BEST) == 0)
        warn_of_later_best(file, &other);
    safetensors_close(&other);
    return status;
}

enum status checkpoint_match_run(const struct safetensors *file, const struct directory *folder)
{
    static const char *const names[] = {CHECKPOINT_LAST, CHECKPOINT_PREVIOUS, CHECKPOINT_BEST};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) TRY(match_one(file, folder, names[i]));
    return OK;
}
