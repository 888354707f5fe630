#include "data/loader/loader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/guest.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signals.h"
#include "data/loader/loader_parts.h"

/* Number of images that a worker takes at a time, so that locking is not significant for small ones. */
#define CHUNK_MAX 16

/* Pieces that the mixing of a batch is divided into, for several workers;
 * one where only targets are mixed. */
#define MIX_PIECES 16

static const char *const slot_work[] = {
    [SLOT_FILLING] = "load images", [SLOT_DECODING] = "decode by the device", [SLOT_MIXING] = "mix images",
};

struct job {
    struct worker *worker;
    struct chunk chunk;
};

static void job_do(void *context)
{
    const struct job *job = context;
    chunk_do(job->worker, job->chunk);
}

/* Makes a chunk; the caller holds the lock. False: a guest had no memory, and nobody will. */
static bool make_chunk(struct worker *worker, struct chunk chunk)
{
    struct loader *loader = worker->loader;
    const char *work = slot_work[chunk.slot->state];
    int64_t begin = clock_nanoseconds();
    loader->busy++;
    pthread_mutex_unlock(&loader->lock);
    bool done = guest_try(job_do, &(struct job){worker, chunk});
    pthread_mutex_lock(&loader->lock);
    time_spans_add(loader->spans, work, (int)(worker - loader->workers), begin);
    if (done) {
        chunk_end(loader, chunk);
        return true;
    }
    loader->no_memory = true;
    loader->busy--;
    pthread_cond_broadcast(&loader->done);
    return false;
}

static void worker_free(struct worker *worker)
{
    image_free(worker->image);
    image_free(worker->mask);
    image_free(&worker->reduced);
    scratch_free(&worker->scratch);
}

/* A thread; takes the lock itself. */
static void *worker_run(void *context)
{
    struct worker *worker = context;
    struct loader *loader = worker->loader;
    struct chunk chunk;
    pthread_mutex_lock(&loader->lock);
    while (!loader->closing) {
        if (!chunk_next(loader, &chunk)) {
            pthread_cond_wait(&loader->work, &loader->lock);
            continue;
        }
        if (!make_chunk(worker, chunk)) break;
    }
    pthread_mutex_unlock(&loader->lock);
    worker_free(worker);
    return NULL;
}

/* Signals are handled by the main thread, except for crashes. Batches do not depend on the number of threads,
 * so fewer are sufficient. */
static enum status start_threads(struct loader *loader)
{
    int failed = 0;
    /* The last one is the caller of loader_next. */
    loader->workers = memory_new((size_t)loader->options.workers + 1, sizeof *loader->workers);
    loader->workers[loader->options.workers].loader = loader;
    while (!failed && loader->worker_count < loader->options.workers) {
        struct worker *worker = &loader->workers[loader->worker_count];
        worker->loader = loader;
        atomic_init(&worker->reading, -1);
        failed = signals_start_thread(&worker->thread, worker_run, worker);
        if (failed) break;
        /* The others look at the workers that are counted. */
        pthread_mutex_lock(&loader->lock);
        loader->worker_count++;
        pthread_mutex_unlock(&loader->lock);
    }
    if (failed && loader->worker_count == 0)
        return fail(FAILED, "cannot start a loader thread: %s", strerror(failed));
    if (failed)
        log_warning("cannot start more than %d of %d loader threads: %s", loader->worker_count,
                    loader->options.workers, strerror(failed));
    return OK;
}

/* The prefetched ones, and the one in use. */
static int slots_of(int prefetch)
{
    return prefetch + 1;
}

static enum status check_options(const struct loader_options *options)
{
    assert(options->classes >= options->dataset->classes ||
           (!mix_is_on(&options->mix) && !options->class_weights));
    assert(options->batch > 0 && options->workers > 0 && options->prefetch > 0);
    assert(options->ranks <= options->batch);
    assert(options->target != TARGET_MASK || (options->dataset->masks && !mix_is_on(&options->mix)));
    if (options->count <= 0) return fail(BAD_DATA, "no images to load");
    if (options->training && options->count < options->batch)
        return fail(USAGE, "a batch of %d is more than the %lld training images", options->batch,
                    (long long)options->count);
    if (!options->features && options->channels != options->dataset->c)
        return fail(USAGE, "the images have %d channels, not %d", options->dataset->c, options->channels);
    return OK;
}

/* Nothing is made until loader_start. */
static void set_count(struct loader *loader, int64_t count)
{
    struct loader_options *options = &loader->options;
    int rest = options->training ? 0 : options->batch - 1;
    options->count = count;
    loader->batches = (count + rest) / options->batch;
    loader->limit = options->training ? loader->batches * options->batch : count;
    loader->batches *= views_count(&options->views);
    loader->filling = loader->next = loader->batches;
}

/* Everything that follows from the options alone. */
static void loader_derive(struct loader *loader)
{
    const struct loader_options *options = &loader->options;
    loader->table = augment_table_make(&options->augment, options->dtype);
    loader->image_bytes =
        (size_t)options->h * (size_t)options->w * (size_t)options->channels * dtype_bytes(options->dtype);
    loader->share = sampler_share(options->batch, options->ranks > 0 ? options->ranks : 1, options->rank);
    loader->batch_bytes = (size_t)loader->share.count * loader->image_bytes;
    if (options->device_preprocessing)
        loader->batch_bytes = batch_packing_bytes(loader->share.count, options->h, options->w,
                                                  options->channels, loader_varies(options));
    loader->mixes = options->training && mix_is_on(&options->mix);
    loader->together = options->batch / (options->micro_batches > 0 ? options->micro_batches : 1);
    loader->targets = (struct target_options){
        .kind = options->target, .classes = options->classes, .together = loader->together,
        .weights = options->training && options->target != TARGET_MASK ? options->class_weights : NULL,
        .label_smoothing = options->training ? options->label_smoothing : 0,
        .mean = options->target_mean, .std = options->target_std,
    };
    loader->mask_targets = options->masks;
    loader->mask_targets.h = options->h;
    loader->mask_targets.w = options->w;
    bool tables = options->masks.outputs > 0;
    loader->makes_targets =
        tables || loader->mixes || loader->targets.weights || target_is_row(options->target);
    loader->counts = tables || (loader->targets.weights && !loader->mixes && !target_is_row(options->target));
    assert(!loader->makes_targets || loader->share.count % loader->together == 0);
    loader->pieces = options->device_preprocessing || !loader->mixes ? 1 : MIX_PIECES;
    if (options->target == TARGET_MASK)
        loader->masks_bytes = mask_targets_bytes(&loader->mask_targets, loader->share.count);
    loader->targets_bytes = (size_t)loader->share.count * targets_row(&loader->targets) * sizeof(float);
    set_count(loader, options->count);
    if (options->training && options->balance)
        loader->by_class = by_class_make(options->dataset, options->subset, options->count);
    loader->chunk = loader->share.count / (2 * options->workers);
    loader->chunk = loader->chunk < 1 ? 1 : loader->chunk > CHUNK_MAX ? CHUNK_MAX : loader->chunk;
    loader->slot_count = slots_of(options->prefetch);
}

static void make_locks(struct loader *loader)
{
    pthread_condattr_t steady;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&loader->done, &steady);
    pthread_condattr_destroy(&steady);
}

enum status loader_open(const struct loader_options *options, struct loader **result)
{
    TRY(check_options(options));
    struct loader *loader = memory_new(1, sizeof *loader);
    loader->options = *options;
    loader_derive(loader);
    atomic_init(&loader->drop, false);
    make_locks(loader);
    enum status status = slots_make(loader);
    if (status == OK) status = start_threads(loader);
    if (status != OK) {
        loader_close(loader);
        return status;
    }
    *result = loader;
    return OK;
}

bool loader_renew(struct loader *loader, const struct loader_options *options)
{
    if (options->workers > loader->worker_count || options->prefetch > loader->options.prefetch) return false;
    pthread_mutex_lock(&loader->lock);
    set_count(loader, options->count);
    loader->options.bad_context = options->bad_context;
    loader->options.helps = options->helps;
    pthread_mutex_unlock(&loader->lock);
    return true;
}

/* False: some of them do not return. Uses the clock that ThreadSanitizer supports for joining. */
static bool join_workers(struct loader *loader)
{
    struct timespec until;
    bool all = true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STALL_LEAVING_SECONDS;
    for (int i = 0; i < loader->worker_count; i++)
        all = pthread_timedjoin_np(loader->workers[i].thread, NULL, &until) == 0 && all;
    return all;
}

void loader_close(struct loader *loader)
{
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->closing = true;
    atomic_store(&loader->drop, true);
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    if (!join_workers(loader)) {
        loader->options.dataset->held = true;
        return;
    }
    slots_free(loader);
    if (loader->workers) worker_free(&loader->workers[loader->options.workers]);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->done);
    pthread_mutex_destroy(&loader->lock);
    free(loader->workers);
    augment_table_free(&loader->table);
    by_class_free(&loader->by_class);
    free(loader);
}

/* Makes workers abandon their chunks. */
static enum status drop_all(struct loader *loader)
{
    struct stall stall = {.from = clock_seconds()};
    atomic_store(&loader->drop, true);
    while (loader->busy > 0) TRY(workers_wait(loader, &stall));
    for (int i = 0; i < loader->slot_count; i++)
        if (loader->slots[i].state != SLOT_OUT) loader->slots[i].state = SLOT_FREE;
    loader->fill = NULL;
    atomic_store(&loader->drop, false);
    return OK;
}

size_t loader_decoded_bytes(int prefetch, size_t batch_bytes)
{
    return (size_t)slots_of(prefetch) * batch_bytes;
}

int64_t loader_batches(const struct loader *loader) { return loader->batches; }

enum status loader_start(struct loader *loader, int64_t epoch, int64_t first)
{
    if (first < 0 || first > loader->batches)
        return fail(FAILED, "batch %lld of an epoch of %lld batches", (long long)first,
                    (long long)loader->batches);
    pthread_mutex_lock(&loader->lock);
    enum status status = drop_all(loader);
    if (status == OK) {
        loader->epoch = epoch;
        loader->filling = loader->next = first;
        pthread_cond_broadcast(&loader->work);
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}

static struct slot *ready_slot(struct loader *loader)
{
    for (int i = 0; i < loader->slot_count; i++)
        if (loader->slots[i].state == SLOT_READY && loader->slots[i].batch.number == loader->next)
            return &loader->slots[i];
    return NULL;
}

static int slots_out(const struct loader *loader)
{
    int count = 0;
    for (int i = 0; i < loader->slot_count; i++) count += loader->slots[i].state == SLOT_OUT;
    return count;
}

/* Does a worker's work in the caller's thread, instead of waiting; false: there is none, or no memory. */
static bool help(struct loader *loader)
{
    struct chunk chunk;
    if (!loader->options.helps || loader->no_memory || !chunk_next(loader, &chunk)) return false;
    return make_chunk(&loader->workers[loader->options.workers], chunk);
}

/* *slot is NULL at the end of the epoch. */
static enum status next_slot(struct loader *loader, struct slot **slot, double *wait_seconds)
{
    *slot = NULL;
    if (loader->next >= loader->batches) return OK;
    assert(slots_out(loader) < loader->slot_count);
    *slot = ready_slot(loader);
    if (*slot) return OK;
    struct stall stall = {.from = clock_seconds()};
    while (!(*slot = ready_slot(loader)))
        if (!help(loader)) TRY(workers_wait(loader, &stall));
    if (wait_seconds) *wait_seconds += clock_seconds() - stall.from;
    return OK;
}

bool loader_wait(struct loader *loader, double most)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanoseconds = until.tv_nsec + (int64_t)(1e9 * most);
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    pthread_mutex_lock(&loader->lock);
    bool late = false;
    while (loader->next < loader->batches && !ready_slot(loader) && !late)
        late = pthread_cond_timedwait(&loader->done, &loader->lock, &until) != 0;
    bool there = loader->next >= loader->batches || ready_slot(loader);
    pthread_mutex_unlock(&loader->lock);
    return there;
}

enum status loader_next(struct loader *loader, struct batch **batch, double *wait_seconds)
{
    struct reason why;
    pthread_mutex_lock(&loader->lock);
    struct slot *slot;
    enum status status = next_slot(loader, &slot, wait_seconds);
    bool bad = slot && slot->bad_place < INT32_MAX;
    if (bad) {
        why = slot->why;
    } else if (slot) {
        slot->state = SLOT_OUT;
        loader->next++;
    }
    pthread_mutex_unlock(&loader->lock);
    TRY(status);
    if (bad) return fail(BAD_DATA, "%s", why.text);
    *batch = slot ? &slot->batch : NULL;
    return OK;
}

void loader_return(struct loader *loader, struct batch *batch)
{
    struct slot *slot = (struct slot *)batch;
    pthread_mutex_lock(&loader->lock);
    assert(slot->state == SLOT_OUT);
    slot->state = SLOT_FREE;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
}

void loader_observe(struct loader *loader, struct time_spans *spans)
{
    pthread_mutex_lock(&loader->lock);
    loader->spans = spans;
    pthread_mutex_unlock(&loader->lock);
}
