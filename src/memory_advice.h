/* memory_advice.h: settings that would reduce the memory of a training step, each evaluated by planning with
 * it. */
#pragma once

#include "forecast.h"

struct advice {
    char setting[64];        /* "memory.strategy=keep" */
    int64_t total_bytes;     /* what a run would take then */
    char price[96];          /* what else becomes of it */
};
#define ADVICE_MAX 8

/* Fills `advice` with settings that would each, alone, make a run take less, the most helpful first; returns
 * how many. What searches for long is not tried: memory.limit on networks of very many layers. */
int memory_advice(const struct session *session, const struct forecast *forecast,
                  struct advice advice[ADVICE_MAX]);
