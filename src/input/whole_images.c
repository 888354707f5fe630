#include "input/whole_images.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/guest.h"
#include "base/memory.h"
#include "base/signals.h"
#include "data/augment/augment.h"
#include "data/dataset/masks.h"
#include "data/loader/stall.h"

/* Images are read ahead while all that are in memory take less than this; a single one may take more. */
#define AHEAD_BYTES ((size_t)1 << 30)

struct whole_images {
    struct whole_images_options options;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t *threads;
    int thread_count;
    int64_t count;                   /* images to read */
    int64_t begun, taken;            /* of these: their reading; those that `next` returned */
    struct whole_image **ready;      /* [window], by number */
    int64_t window;
    struct whole_image *given;       /* to be taken */
    struct whole_image *lent;        /* that `next` returned, until they are given */
    size_t bytes;                    /* of images in memory */
    int taking;                      /* threads that take a result */
    bool closing, late;              /* late: stopped, or a read takes too long */
    bool no_memory;                  /* a guest's thread had none */
};

/* An image that is being read. */
struct reading {
    struct whole_images *images;
    struct whole_image *image;
    int64_t number;
};

/* Waits until there is memory for an image of this size. That which is waited for never waits. */
static void reserve(const struct reading *reading, int h, int w)
{
    struct whole_images *images = reading->images;
    const struct whole_images_options *options = &images->options;
    size_t sample = reading->image->image.deep ? sizeof(float) : 1;
    size_t each = (size_t)options->dataset->c * sample + 2 + (size_t)options->outputs * sizeof(float);
    size_t bytes = (size_t)h * (size_t)w * each;
    pthread_mutex_lock(&images->lock);
    while (images->bytes + bytes > AHEAD_BYTES && reading->number > images->taken && !images->closing)
        pthread_cond_wait(&images->changed, &images->lock);
    images->bytes += bytes;
    reading->image->bytes += bytes;
    pthread_mutex_unlock(&images->lock);
}

static bool choose_all(void *context, int h, int w, struct box *part, struct reason *reason)
{
    reserve(context, h, w);
    *part = (struct box){.h = h, .w = w};
    return true;
}

static bool resize(struct whole_image *image, const struct whole_images_options *options,
                   struct reason *reason)
{
    const struct image_size own = {image->h, image->w};
    struct image_size size = image_size_covering(own, options->resize);
    struct image target = {0};
    const struct resizing resizing = {{0, 0, own.h, own.w}, size.h, size.w, {0, 0, size.h, size.w},
                                      options->interpolation};
    if (size.h == own.h && size.w == own.w) return true;
    bool good = resize_image(&image->image, &resizing, &target, reason);
    if (!good) image_free(&target);
    else image_free(&image->image), image->image = target;
    return good;
}

static bool make_room(struct whole_image *image, int outputs, struct reason *reason)
{
    size_t pixels = (size_t)image->h * (size_t)image->w;
    image->left = (int64_t)pixels;
    image->classes = memory_try(pixels, 1);
    if (outputs > 0) image->probabilities = memory_try(pixels * (size_t)outputs, sizeof(float));
    if (image->classes && (outputs == 0 || image->probabilities)) return true;
    return because(reason, "not enough memory for the result of %dx%d pixels", image->w, image->h);
}

static bool read_mask(const struct whole_images_options *options, int64_t index, struct whole_image *image,
                      struct reason *reason)
{
    struct image *mask = &image->mask;
    if (!masks_read(options->dataset, index, mask, &image->wrong, reason)) return false;
    if (mask->h == image->h && mask->w == image->w) return true;
    image->wrong = true;
    return because(reason, "%dx%d pixels, but its mask has %dx%d", image->w, image->h, mask->w, mask->h);
}

static bool read_one(struct reading *reading, int64_t index, struct reason *reason)
{
    const struct whole_images_options *options = &reading->images->options;
    const struct dataset *dataset = options->dataset;
    struct whole_image *image = reading->image;
    const struct image_choice choice = {choose_all, reading};
    int label;
    if (!dataset->format->read(dataset, index, &choice, &image->image, &label, reason)) return false;
    image->h = image->image.h;
    image->w = image->image.w;
    if (image->bytes == 0) reserve(reading, image->h, image->w);
    if (options->masks && !read_mask(options, index, image, reason)) return false;
    if (options->resize.h > 0 && !resize(image, options, reason)) return false;
    return make_room(image, options->outputs, reason);
}

const char *whole_image_why(const struct whole_image *image, const char *name)
{
    size_t length = strlen(name);
    bool named = strncmp(image->problem, name, length) == 0 && strncmp(image->problem + length, ": ", 2) == 0;
    return named ? image->problem + length + 2 : image->problem;
}

static int64_t index_of(const struct whole_images *images, int64_t place)
{
    return images->options.subset ? images->options.subset[place] : place;
}

static struct whole_image *read_image(struct whole_images *images, int64_t number)
{
    const struct whole_images_options *options = &images->options;
    struct whole_image *image = memory_new(1, sizeof *image);
    struct reading reading = {images, image, number};
    struct reason reason;
    image->place = options->rank + number * options->ranks;
    int64_t index = index_of(images, image->place);
    if (read_one(&reading, index, &reason)) return image;
    char *path = dataset_image_path(options->dataset, index);
    bool named = !path || strncmp(reason.text, path, strlen(path)) == 0 || image->wrong;
    if (!named) because_of(&reason, path, reason.text);
    image->problem = text_copy(reason.text);
    free(path);
    return image;
}

static void drop(struct whole_images *images, struct whole_image *image)
{
    pthread_mutex_lock(&images->lock);
    images->bytes -= image->bytes;
    pthread_cond_broadcast(&images->changed);
    pthread_mutex_unlock(&images->lock);
    free(image->problem);
    image_free(&image->image);
    image_free(&image->mask);
    free(image->classes);
    free(image->probabilities);
    free(image);
}

/* A thread's work on an image, without the lock. */
struct whole_job {
    struct whole_images *images;
    int64_t number;
    struct whole_image *image;
};

static void job_read(void *context)
{
    struct whole_job *job = context;
    job->image = read_image(job->images, job->number);
}

static void job_take(void *context)
{
    struct whole_job *job = context;
    job->images->options.take(job->images->options.context, job->image);
    drop(job->images, job->image);
}

/* take_result and read_next hold the lock before and after; false: there is nothing to do. */

static bool take_result(struct whole_images *images)
{
    struct whole_job job = {images, 0, images->given};
    if (!job.image) return false;
    images->given = job.image->next;
    images->taking++;
    pthread_mutex_unlock(&images->lock);
    bool done = guest_try(job_take, &job);
    pthread_mutex_lock(&images->lock);
    if (!done) images->no_memory = true;
    images->taking--;
    pthread_cond_broadcast(&images->changed);
    return true;
}

static bool may_read(const struct whole_images *images)
{
    return images->begun < images->count && images->begun - images->taken < images->window &&
           !images->closing;
}

static bool read_next(struct whole_images *images)
{
    struct whole_job job = {images, images->begun, NULL};
    if (!may_read(images)) return false;
    images->begun++;
    pthread_mutex_unlock(&images->lock);
    bool done = guest_try(job_read, &job);
    pthread_mutex_lock(&images->lock);
    if (!done) images->no_memory = true;
    images->ready[job.number % images->window] = job.image;
    pthread_cond_broadcast(&images->changed);
    return true;
}

static void *whole_images_run(void *context)
{
    struct whole_images *images = context;
    pthread_mutex_lock(&images->lock);
    while (true) {
        if (take_result(images) || read_next(images)) continue;
        if (images->closing) break;
        pthread_cond_wait(&images->changed, &images->lock);
    }
    pthread_mutex_unlock(&images->lock);
    return NULL;
}

static void make_locks(struct whole_images *images)
{
    pthread_condattr_t steady;
    pthread_mutex_init(&images->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&images->changed, &steady);
    pthread_condattr_destroy(&steady);
}

enum status whole_images_open(const struct whole_images_options *options, struct whole_images **images)
{
    struct whole_images *made = memory_new(1, sizeof *made);
    made->options = *options;
    made->count = (options->count - options->rank + options->ranks - 1) / options->ranks;
    made->window = options->threads + 1;
    made->ready = memory_new((size_t)made->window, sizeof *made->ready);
    made->threads = memory_new((size_t)options->threads, sizeof *made->threads);
    make_locks(made);
    while (made->thread_count < options->threads &&
           signals_start_thread(&made->threads[made->thread_count], whole_images_run, made) == 0)
        made->thread_count++;
    if (made->thread_count == 0) {
        whole_images_close(made);
        return fail(FAILED, "no thread can be started that reads images");
    }
    *images = made;
    return OK;
}

bool whole_images_stop(struct whole_images *images)
{
    const struct whole_images_options *options = &images->options;
    if (options->stop && options->stop(options->context)) images->late = true;
    return images->late;
}

/* Names the image that is waited for, which a thread reads, or is yet to begin. */
static enum status report_stall(const struct whole_images *images, struct stall *stall)
{
    const struct whole_images_options *options = &images->options;
    int64_t index = index_of(images, options->rank + images->taken * options->ranks);
    char *path = dataset_image_path(options->dataset, index), *what = NULL;
    if (images->begun == images->taken)
        what = text_format("%d threads that write results are overloaded", images->thread_count);
    else if (path) what = text_format("%s: it is still being read", path);
    else what = text_format("image %lld: it is still being read", (long long)index);
    enum status status = stall_report(stall, options->timeout, what, "image");
    free(path);
    free(what);
    return status;
}

/* Waits for at most a second, with the lock held. */
static enum status wait_ready(struct whole_images *images, struct stall *stall)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&images->changed, &images->lock, &until);
    if (whole_images_stop(images)) return STOPPED;
    if (images->no_memory) return fail(FAILED, "out of host memory");
    return stall_due(stall, images->options.timeout) ? report_stall(images, stall) : OK;
}

enum status whole_images_next(struct whole_images *images, struct whole_image **image)
{
    enum status status = OK;
    struct stall stall = {.from = clock_seconds()};
    *image = NULL;
    if (images->taken == images->count) return OK;
    pthread_mutex_lock(&images->lock);
    struct whole_image **ready = &images->ready[images->taken % images->window];
    while (!*ready && status == OK) status = wait_ready(images, &stall);
    images->late = status != OK;
    if (status == OK) {
        *image = *ready;
        *ready = NULL;
        (*image)->next = images->lent;
        images->lent = *image;
        images->taken++;
        pthread_cond_broadcast(&images->changed);
    }
    pthread_mutex_unlock(&images->lock);
    if (*image && (*image)->wrong) return fail(BAD_DATA, "%s", (*image)->problem);
    return status;
}

void whole_images_give(struct whole_images *images, struct whole_image *image)
{
    struct whole_image **at = &images->lent;
    pthread_mutex_lock(&images->lock);
    while (*at != image) at = &(*at)->next;
    *at = image->next;
    image->next = images->given;
    images->given = image;
    pthread_cond_broadcast(&images->changed);
    pthread_mutex_unlock(&images->lock);
}

/* False: some of them do not return. Results are taken by then. The clock is the one that ThreadSanitizer
 * supports for joining. */
static bool join_threads(struct whole_images *images)
{
    struct timespec until;
    bool all = true;
    pthread_mutex_lock(&images->lock);
    images->closing = true;
    pthread_cond_broadcast(&images->changed);
    while (take_result(images)) continue;
    while (images->taking > 0) pthread_cond_wait(&images->changed, &images->lock);
    pthread_mutex_unlock(&images->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STALL_LEAVING_SECONDS;
    for (int i = 0; i < images->thread_count; i++)
        if (!images->late) pthread_join(images->threads[i], NULL);
        else all = pthread_timedjoin_np(images->threads[i], NULL, &until) == 0 && all;
    return all;
}

enum status whole_images_close(struct whole_images *images)
{
    if (!images) return OK;
    if (!join_threads(images)) {
        images->options.dataset->held = true;
        return OK;
    }
    bool lost = images->no_memory && !images->late;
    for (int64_t i = 0; i < images->window; i++)
        if (images->ready[i]) drop(images, images->ready[i]);
    for (struct whole_image *image; (image = images->lent);) {
        images->lent = image->next;
        drop(images, image);
    }
    pthread_mutex_destroy(&images->lock);
    pthread_cond_destroy(&images->changed);
    free(images->ready);
    free(images->threads);
    free(images);
    return lost ? fail(FAILED, "out of host memory") : OK;
}
