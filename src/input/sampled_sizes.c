#include "input/sampled_sizes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/signals.h"
#include "data/loader/stall.h"

/* A thread reads, which may wait for a file system that does not answer; then it keeps this struct. */
struct sampling {
    const struct dataset *dataset;
    int64_t list[SAMPLED_SIZES];
    int count;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int at;                          /* the place in the list that is being read; count: all were */
    bool left;                       /* nobody waits any more */
    struct sampled sampled;
};

static void sampling_free(struct sampling *sampling)
{
    pthread_cond_destroy(&sampling->changed);
    pthread_mutex_destroy(&sampling->lock);
    free(sampling);
}

static void *read_all(void *context)
{
    struct sampling *sampling = context;
    bool left = false;
    while (!left && sampling->at < sampling->count) {
        struct image_facts facts;
        struct reason reason;
        bool good = dataset_image_facts(sampling->dataset, sampling->list[sampling->at], &facts, &reason);
        pthread_mutex_lock(&sampling->lock);
        if (good) sampling->sampled.facts[sampling->sampled.count++] = facts;
        sampling->at++;
        left = sampling->left;
        pthread_cond_signal(&sampling->changed);
        pthread_mutex_unlock(&sampling->lock);
    }
    if (left) sampling_free(sampling);
    return NULL;
}

/* Waits for the next image at most a second, with the lock held. */
static enum status wait_for_one(struct sampling *sampling, double timeout, struct stall *stall)
{
    struct timespec until;
    int at = sampling->at;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&sampling->changed, &sampling->lock, &until);
    if (sampling->at != at) *stall = (struct stall){.from = clock_seconds()};
    if (sampling->at != at || !stall_due(stall, timeout)) return OK;
    char *path = dataset_image_path(sampling->dataset, sampling->list[at]);
    struct reason what;
    because_of(&what, path ? path : "an image", "it is still being read");
    free(path);
    return stall_report(stall, timeout, what.text, "image");
}

static enum status sampling_wait(struct sampling *sampling, double timeout)
{
    struct stall stall = {.from = clock_seconds()};
    enum status status = OK;
    pthread_mutex_lock(&sampling->lock);
    while (status == OK && sampling->at < sampling->count) status = wait_for_one(sampling, timeout, &stall);
    sampling->left = status != OK;
    pthread_mutex_unlock(&sampling->lock);
    return status;
}

static struct sampling *sampling_new(const struct dataset *dataset, const int64_t *subset, int64_t count)
{
    struct sampling *sampling = memory_new(1, sizeof *sampling);
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&sampling->changed, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&sampling->lock, NULL);
    sampling->dataset = dataset;
    sampling->count = count < SAMPLED_SIZES ? (int)count : SAMPLED_SIZES;
    for (int i = 0; i < sampling->count; i++) {
        int64_t place = i * count / sampling->count;
        sampling->list[i] = subset ? subset[place] : place;
    }
    return sampling;
}

enum status sampled_read(struct dataset *dataset, const int64_t *subset, int64_t count, double timeout,
                         struct sampled *sampled)
{
    pthread_t thread;
    if (!dataset || (!dataset->decoded && dataset->h > 0)) return OK;
    struct sampling *sampling = sampling_new(dataset, subset, count);
    int failed = signals_start_thread(&thread, read_all, sampling);
    if (failed) {
        sampling_free(sampling);
        return fail(FAILED, "cannot start a thread that reads images: %s", strerror(failed));
    }
    enum status status = sampling_wait(sampling, timeout);
    if (status != OK) {
        dataset->held = true;
        pthread_detach(thread);
        return status;
    }
    pthread_join(thread, NULL);
    *sampled = sampling->sampled;
    sampling_free(sampling);
    return OK;
}

bool sampled_deep(const struct sampled *sampled)
{
    for (int i = 0; i < sampled->count; i++)
        if (sampled->facts[i].deep) return true;
    return false;
}
