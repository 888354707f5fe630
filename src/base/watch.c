#include "watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "log.h"
#include "memory.h"
#include "signals.h"

struct watch {
    double after;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool over;
    char what[512];
};

static struct timespec watch_later(struct timespec from, double seconds)
{
    double nanoseconds = (double)from.tv_nsec + 1e9 * (seconds - (double)(long)seconds);
    long carry = nanoseconds >= 1e9;
    return (struct timespec){from.tv_sec + (long)seconds + carry, (long)nanoseconds - carry * 1000000000};
}

static void *watch_thread(void *context)
{
    struct watch *watch = context;
    struct timespec from;
    double seconds = watch->after;
    clock_gettime(CLOCK_MONOTONIC, &from);
    pthread_mutex_lock(&watch->lock);
    while (!watch->over) {
        struct timespec until = watch_later(from, seconds);
        if (pthread_cond_timedwait(&watch->change, &watch->lock, &until) != ETIMEDOUT) continue;
        log_warning("%s has been running for %.0f s", watch->what, seconds);
        seconds *= 2;
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

static void watch_free(struct watch *watch)
{
    pthread_cond_destroy(&watch->change);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

struct watch *watch_begin(double after, const char *format, ...)
{
    struct watch *watch = memory_new(1, sizeof *watch);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(watch->what, sizeof watch->what, format, arguments);
    va_end(arguments);
    watch->after = after;
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->change, &steady);
    pthread_condattr_destroy(&steady);
    if (signals_start_thread(&watch->thread, watch_thread, watch) == 0) return watch;
    watch_free(watch);
    return NULL;
}

void watch_end(struct watch *watch)
{
    if (!watch) return;
    pthread_mutex_lock(&watch->lock);
    watch->over = true;
    pthread_cond_signal(&watch->change);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    watch_free(watch);
}
