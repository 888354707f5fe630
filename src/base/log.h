/* log.h: the log: levelled lines on stderr, results on stdout, and all of them in a file.
 *
 * Messages may contain names from untrusted files: lines are escaped by text_visible(). */
#pragma once

enum log_level { LOG_ERROR, LOG_WARNING, LOG_RESULT, LOG_INFO, LOG_DETAIL };

/* A destination of lines in addition to stderr (log.txt, a test's buffer). `line` has no newline. */
struct log_sink {
    void (*write)(void *context, enum log_level level, const char *line);
    void *context;
};

/* The beginning of a line of log.txt: time and level. */
#define LOG_STAMP 48
void log_stamp(enum log_level level, char stamp[LOG_STAMP]);

/* The log belongs to the process, like stderr: a mutable global; a guest's lines are its own (guest.h).
 * Thread-safe. Levels above `level` (default
 * LOG_INFO) go only to the sink, which gets all of them. */
void log_set_level(enum log_level level);
void log_set_sink(struct log_sink sink);     /* {NULL, NULL} takes it away */

/* Called before and after a line is shown, to erase and redraw a progress line; NULL removes it. */
void log_set_curtain(void (*wipe)(void *context), void *context);

void log_line(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* To stdout. Whether that failed is asked once, at the end of the program: a run goes on. */
#define log_result(...) log_line(LOG_RESULT, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_detail(...) log_line(LOG_DETAIL, __VA_ARGS__)

/* The errno of the first result that could not be written; 0: all were. */
int log_results_error(void);
