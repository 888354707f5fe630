/* process.h: what this process takes of the machine, for tests that look for what is not given back. */
#pragma once

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A line of /proc/self/status: "Threads:", and in KiB "VmRSS:" (resident memory) or "VmHWM:" (the most of it
 * that there ever was). */
static inline long process_status(const char *key)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    long value = -1;
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), "%ld", &value);
    if (file) fclose(file);
    return value;
}

static inline double process_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
