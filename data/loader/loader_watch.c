/* loader_watch.c: finds the worker that has been reading for the longest time, and reports a stall. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "data/loader/loader_parts.h"

void reading_begin(struct worker *worker, int64_t index)
{
    atomic_store(&worker->since, clock_seconds());
    atomic_store(&worker->reading, index);
}

void reading_end(struct worker *worker)
{
    atomic_store(&worker->reading, -1);
}

/* The worker that has been reading one image for longest; NULL: none is reading. */
static const struct worker *slowest(const struct loader *loader)
{
    const struct worker *found = NULL;
    for (int i = 0; i < loader->worker_count; i++) {
        const struct worker *worker = &loader->workers[i];
        if (atomic_load(&worker->reading) < 0) continue;
        if (!found || atomic_load(&worker->since) < atomic_load(&found->since)) found = worker;
    }
    return found;
}

/* The work that is waited for. */
static void describe_wait(const struct loader *loader, double now, struct reason *what)
{
    const struct dataset *dataset = loader->options.dataset;
    const struct worker *worker = slowest(loader);
    int64_t index = worker ? atomic_load(&worker->reading) : -1;
    if (index < 0) {
        because(what, "%d loader threads are overloaded", loader->worker_count);
        return;
    }
    char *path = dataset_image_path(dataset, index);
    if (!path) path = text_format("image %lld", (long long)index);
    struct reason why;
    because(&why, "reading it has taken %.0f s so far", now - atomic_load(&worker->since));
    because_of(what, path, why.text);
    free(path);
}

enum status workers_wait(struct loader *loader, struct stall *stall)
{
    const struct loader_options *options = &loader->options;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&loader->done, &loader->lock, &until);
    if (options->stop && options->stop()) return STOPPED;
    if (loader->no_memory) return fail(FAILED, "out of host memory");
    if (!stall_due(stall, options->timeout)) return OK;
    struct reason what;
    describe_wait(loader, clock_seconds(), &what);
    return stall_report(stall, options->timeout, what.text, "batch");
}
