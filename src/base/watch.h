/* watch.h: a warning when an operation takes long, so that a hanging file system is noticed. */
#pragma once

/* After so long one may ask what is going on. */
#define WATCH_SECONDS 30

struct watch;

/* Begins to watch what the words name; a warning follows `after` seconds, and again whenever the time has
 * doubled, until watch_end. NULL where there is no thread to be had for it. */
struct watch *watch_begin(double after, const char *format, ...) __attribute__((format(printf, 2, 3)));
void watch_end(struct watch *watch);             /* accepts NULL */
