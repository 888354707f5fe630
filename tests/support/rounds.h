/* rounds.h: tests that have a short form in `make check` and a long one in `make torture`
 * (tests/torture.mk). */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* How often a test is to try something: what AMPTRAIN_ROUNDS says, `full` under `make torture`,
 * or `brief`. */
static inline long rounds(long brief, long full)
{
    const char *wanted = getenv("AMPTRAIN_ROUNDS"), *torture = getenv("AMPTRAIN_TORTURE");
    if (wanted && *wanted) return atol(wanted);
    return torture && *torture ? full : brief;
}

/* A figure for whoever reads the results: a comment of TAP's. */
__attribute__((format(printf, 1, 2))) static inline void figure(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# ");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}
