/* log.h: the log: levelled lines on stderr, results on stdout, and all of them in a file.
 *
 * Messages may contain names from untrusted files: lines are escaped by text_visible(). */
#pragma once

enum log_level { LOG_ERROR, LOG_WARNING, LOG_RESULT, LOG_INFO, LOG_DETAIL };

/* A place that lines go to besides stderr (log.txt, a test's buffer). `line` has no newline. */
struct log_sink {
    void (*write)(void *context, enum log_level level, const char *line);
    void *context;
};

/* The beginning of a line of log.txt: time and level. */
#define LOG_STAMP 48
void log_stamp(enum log_level level, char stamp[LOG_STAMP]);

/* The log is the process's own, like stderr: the one mutable global of the program.
 * Lines may come from any thread. Levels above `level` are shown only to
 * the sink (default LOG_INFO), which gets all of them. */
void log_set_level(enum log_level level);
void log_set_sink(struct log_sink sink);     /* {NULL, NULL} takes it away */

/* Called before a line is shown and after it, so that a progress line can be wiped and
 * drawn again; NULL takes it away. */
void log_set_curtain(void (*wipe)(void *context), void *context);

void log_line(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* To stdout. That it cannot be written is no error: the file has it. */
#define log_result(...) log_line(LOG_RESULT, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_detail(...) log_line(LOG_DETAIL, __VA_ARGS__)
