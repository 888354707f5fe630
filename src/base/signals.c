#include "base/signals.h"

#include <stdatomic.h>
#include <stddef.h>

static const int watched[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGUSR2};

static atomic_int stop;
static atomic_bool checkpoint, status;

static void on_stop(int number)
{
    if (atomic_exchange(&stop, number) == 0) return;
    signal(number, SIG_DFL);
    raise(number);
}

static void on_request(int number)
{
    if (number == SIGHUP) atomic_store(&checkpoint, true);
    if (number == SIGUSR2) atomic_store(&status, true);
}

static void watch(int number, void (*handler)(int))
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

static void mask(int how)
{
    sigset_t set;
    signals_set(&set);
    sigprocmask(how, &set, NULL);
}

void signals_hold(void)
{
    mask(SIG_BLOCK);
}

void signals_release(void)
{
    mask(SIG_UNBLOCK);
}

void signals_watch(void)
{
    watch(SIGINT, on_stop);
    watch(SIGTERM, on_stop);
    watch(SIGUSR1, on_stop);
    watch(SIGHUP, on_request);
    watch(SIGUSR2, on_request);
    watch(SIGPIPE, SIG_IGN);
    watch(SIGXFSZ, SIG_IGN);
    signals_release();
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
