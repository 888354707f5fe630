/* measured_times.h: the times of instructions as measured by `bench --layers --json`. */
#pragma once

#include "base/status.h"

struct measured_times;

/* BAD_DATA if bench has not written it. */
enum status measured_times_open(const char *path, struct measured_times **times);
void measured_times_close(struct measured_times *times);      /* accepts NULL */

/* Seconds of the instruction called `name` if it reads and writes so many bytes: the measured time in
 * proportion to the measured bytes, except for `call` seconds, which any takes; NAN: it was not measured. */
double measured_times_find(const struct measured_times *times, const char *name, double bytes, double call);
