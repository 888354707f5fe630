#include "data/loader/stall.h"

#include "base/clock.h"
#include "base/log.h"

/* Time after which to warn. */
#define STALLED_SECONDS 30

static bool is_over(double waited, double timeout) { return timeout > 0 && waited >= timeout; }

bool stall_due(const struct stall *stall, double timeout)
{
    double waited = clock_seconds() - stall->from;
    return is_over(waited, timeout) || waited >= (stall->said > 0 ? 2 * stall->said : STALLED_SECONDS);
}

enum status stall_report(struct stall *stall, double timeout, const char *what, const char *missing)
{
    double waited = clock_seconds() - stall->from;
    if (is_over(waited, timeout))
        return fail(BAD_DATA, "%s; no %s for %.0f s, which exceeds loader.timeout", what, missing, waited);
    log_warning("%s; no %s for %.0f s", what, missing, waited);
    stall->said = waited;
    return OK;
}
