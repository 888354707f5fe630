/* memory_advice.h: settings that would reduce the memory of a training step, or its time under a limit, each
 * evaluated by planning with it. */
#pragma once

#include "forecast/forecast.h"

struct advice {
    char setting[64];        /* "memory.strategy=keep" */
    int64_t total_bytes;     /* memory of a run with this setting */
    bool saves;              /* at least 1 % of the memory */
    char price[96];          /* other consequences */
};
#define ADVICE_MAX 8

/* Fills `advice` with settings each of which would reduce the memory of a run, or the time of a step under
 * its limit; the least memory first; returns their number. memory.limit is not tried on networks with very
 * many layers, because the search would take long. */
int memory_advice(const struct session *session, const struct forecast *forecast,
                  struct advice advice[ADVICE_MAX]);
