#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/guest.h"
#include "status.h"
#include "text.h"

static struct {
    pthread_mutex_t lock;
    enum log_level level;
    struct log_sink sink;
    void (*wipe)(void *context);
    void *wipe_context;
    int results_error;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = LOG_INFO};

static const char *const prefix[] = {
    [LOG_ERROR] = "amptrain: ",
    [LOG_WARNING] = "amptrain: warning: ",
    [LOG_RESULT] = "",
    [LOG_INFO] = "",
    [LOG_DETAIL] = "",
};

/* Colours of the prefix: red and yellow. */
static const char *const colours[] = {
    [LOG_ERROR] = "\033[31m", [LOG_WARNING] = "\033[33m", [LOG_DETAIL] = NULL,
};

/* no-color.org */
static bool shows_colours(void)
{
    const char *type = getenv("TERM"), *none = getenv("NO_COLOR");
    return type && strcmp(type, "dumb") != 0 && !(none && *none) && isatty(STDERR_FILENO);
}

void log_set_level(enum log_level level)
{
    pthread_mutex_lock(&state.lock);
    state.level = level;
    pthread_mutex_unlock(&state.lock);
}

void log_set_sink(struct log_sink sink)
{
    pthread_mutex_lock(&state.lock);
    state.sink = sink;
    pthread_mutex_unlock(&state.lock);
}

void log_set_curtain(void (*wipe)(void *context), void *context)
{
    pthread_mutex_lock(&state.lock);
    state.wipe = wipe;
    state.wipe_context = context;
    pthread_mutex_unlock(&state.lock);
}

void log_stamp(enum log_level level, char stamp[LOG_STAMP])
{
    static const char *const names[] = {
        [LOG_ERROR] = "error", [LOG_WARNING] = "warning", [LOG_RESULT] = "result", [LOG_INFO] = "info",
        [LOG_DETAIL] = "detail",
    };
    time_t now = time(NULL);
    struct tm local;
    size_t length = strftime(stamp, LOG_STAMP, "%Y-%m-%dT%H:%M:%S%z", localtime_r(&now, &local));
    snprintf(stamp + length, LOG_STAMP - length, " %s: ", names[level]);
}

#define LINE_ROOM 4096

/* Lines after the first are indented, so that foreign text cannot imitate a message. */
static void make_visible(char *said, char line[LINE_ROOM])
{
    char *rest = said, *part = strsep(&rest, "\n");
    text_visible(part, line, LINE_ROOM);
    while ((part = strsep(&rest, "\n"))) {
        size_t length = strlen(line);
        if (length + 4 > LINE_ROOM) return;
        strcpy(line + length, *part ? "\n  " : "\n");
        text_visible(part, line + strlen(line), LINE_ROOM - strlen(line));
    }
}

static void show(enum log_level level, const char *line)
{
    if (level == LOG_RESULT) {
        if (dprintf(STDOUT_FILENO, "%s\n", line) < 0 && state.results_error == 0) state.results_error = errno;
        return;
    }
    bool coloured = colours[level] && shows_colours();
    fprintf(stderr, "%s%s%s%s\n", coloured ? colours[level] : "", prefix[level],
            coloured ? "\033[m" : "", line);
}

static void log_write(enum log_level level, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

static void log_write(enum log_level level, const char *format, va_list arguments)
{
    char said[LINE_ROOM], line[LINE_ROOM];
    vsnprintf(said, sizeof said, format, arguments);
    make_visible(said, line);
    const struct guest *guest = guest_now();
    if (guest) {
        if (guest->write) guest->write(guest->context, (int)level, line);
        return;
    }
    pthread_mutex_lock(&state.lock);
    if (level <= state.level) {
        if (state.wipe) state.wipe(state.wipe_context);
        show(level, line);
    }
    if (state.sink.write) state.sink.write(state.sink.context, level, line);
    pthread_mutex_unlock(&state.lock);
}

void log_line(enum log_level level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_write(level, format, arguments);
    va_end(arguments);
}

int log_results_error(void)
{
    pthread_mutex_lock(&state.lock);
    int error = state.results_error;
    pthread_mutex_unlock(&state.lock);
    return error;
}

enum status fail(enum status why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_write(LOG_ERROR, format, arguments);
    va_end(arguments);
    return why;
}

_Bool because_of(struct reason *reason, const char *what, const char *why)
{
    /* A long explanation is limited to half of the buffer. */
    size_t room = REASON_SIZE - sizeof ": ", length = strlen(what), tail = strlen(why);
    tail = tail < room / 2 ? tail : room / 2;
    bool cut = length > room - tail;
    const char *from = cut ? what + length - (room - tail) + 3 : what;
    char copy[REASON_SIZE];
    int error = why == reason->text ? reason->error : 0;
    snprintf(copy, sizeof copy, "%s", why);
    because(reason, "%s%s: %s", cut ? "..." : "", from, copy);
    reason->error = error;
    return false;
}

_Bool because_errno(struct reason *reason, const char *what)
{
    int error = errno;
    because(reason, "%s: %s", what, strerror(error));
    reason->error = error;
    return false;
}

_Bool because(struct reason *reason, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason->text, sizeof reason->text, format, arguments);
    reason->error = 0;
    va_end(arguments);
    return 0;
}
