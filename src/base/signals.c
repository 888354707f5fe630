#include "base/signals.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/guest.h"
#include "base/memory.h"

static const int watched[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGUSR2};

static atomic_int stop;
static atomic_bool checkpoint, status, ready;

static void signals_on_stop(int number)
{
    if (atomic_exchange(&stop, number) == 0) {
        if (!atomic_load(&ready)) alarm(SIGNALS_GRACE);
        return;
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* Threads that open data may block the signal, so it goes to the process. */
static void signals_on_alarm(int number)
{
    static const char words[] = "amptrain: stopped while it started: there is nothing to save\n";
    (void)number;
    if (atomic_load(&ready)) return;
    ssize_t written = write(STDERR_FILENO, words, sizeof words - 1);
    (void)written;
    signal(atomic_load(&stop), SIG_DFL);
    kill(getpid(), atomic_load(&stop));
}

static void signals_on_request(int number)
{
    if (number == SIGHUP) atomic_store(&checkpoint, true);
    if (number == SIGUSR2) atomic_store(&status, true);
}

static void signals_handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void signals_set(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) sigaddset(set, watched[i]);
}

static void signals_mask(int how)
{
    sigset_t set;
    signals_set(&set);
    sigprocmask(how, &set, NULL);
}

void signals_hold(void)
{
    signals_mask(SIG_BLOCK);
}

void signals_release(void)
{
    signals_mask(SIG_UNBLOCK);
}

struct guest_thread {
    void *(*run)(void *context);
    void *context;
};

static void *guest_thread_run(void *given)
{
    static const struct guest silent;
    const struct guest_thread thread = *(struct guest_thread *)given;
    free(given);
    guest_set(&silent);
    return thread.run(thread.context);
}

static int start(pthread_t *thread, void *(*run)(void *context), void *context)
{
    if (!guest_now()) return pthread_create(thread, NULL, run, context);
    struct guest_thread *guest = memory_new(1, sizeof *guest);
    *guest = (struct guest_thread){run, context};
    int failed = pthread_create(thread, NULL, guest_thread_run, guest);
    if (failed) free(guest);
    return failed;
}

int signals_start_thread(pthread_t *thread, void *(*run)(void *context), void *context)
{
    sigset_t requests, before;
    signals_set(&requests);
    pthread_sigmask(SIG_BLOCK, &requests, &before);
    int failed = start(thread, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

void signals_watch(void)
{
    signals_handle(SIGINT, signals_on_stop);
    signals_handle(SIGTERM, signals_on_stop);
    signals_handle(SIGUSR1, signals_on_stop);
    signals_handle(SIGALRM, signals_on_alarm);
    signals_handle(SIGHUP, signals_on_request);
    signals_handle(SIGUSR2, signals_on_request);
    signals_handle(SIGPIPE, SIG_IGN);
    signals_handle(SIGXFSZ, SIG_IGN);
    signals_release();
}

void signals_ready(void)
{
    atomic_store(&ready, true);
}

int signals_stop(void)
{
    return atomic_load(&stop);
}

bool signals_checkpoint(void)
{
    return atomic_exchange(&checkpoint, false);
}

bool signals_status(void)
{
    return atomic_exchange(&status, false);
}
