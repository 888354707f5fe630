#include "train/signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t stop, checkpoint, status;

static void on_stop(int number)
{
    if (stop) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stop = number;
}

static void on_request(int number)
{
    if (number == SIGHUP) checkpoint = 1;
    if (number == SIGUSR2) status = 1;
}

static void watch(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
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
}

int signals_stop(void)
{
    return stop;
}

bool signals_checkpoint(void)
{
    bool asked = checkpoint;
    checkpoint = 0;
    return asked;
}

bool signals_status(void)
{
    bool asked = status;
    status = 0;
    return asked;
}
