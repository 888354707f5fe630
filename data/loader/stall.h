/* stall.h: a wait for threads that read images, which may themselves wait for a file system that no longer
 * answers: a warning after 30 s, and again whenever the time has doubled; an error after loader.timeout. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* How long closing waits for threads that do not return from a read. */
#define STALL_LEAVING_SECONDS 2

struct stall {
    double from, said;           /* its beginning; the last report, in seconds after that */
};

/* True if there is something to report now. `timeout`: 0: never an error. */
bool stall_due(const struct stall *stall, double timeout);

/* Names `what` is waited for, and what is missing ("batch"). BAD_DATA after the timeout. */
enum status stall_report(struct stall *stall, double timeout, const char *what, const char *missing);
