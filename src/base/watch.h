/* watch.h: a warning when an operation takes long, so that a hanging file system is noticed. */
#pragma once

/* The time after which to warn. */
#define WATCH_SECONDS 30

struct watch;

/* Begins to watch the operation named by the text; warns after `after` seconds, and again whenever the time
 * has doubled, until watch_end. NULL if no thread can be created. */
struct watch *watch_begin(double after, const char *format, ...) __attribute__((format(printf, 2, 3)));
void watch_end(struct watch *watch);             /* accepts NULL */
