/* clock.h: wall-clock time, and the peak memory of this process. */
#pragma once

#include <stdint.h>

double clock_seconds(void);          /* monotonic, from an arbitrary moment */
int64_t clock_nanoseconds(void);     /* the same */
double clock_since_start(void);      /* since this process began */
int64_t clock_host_peak_bytes(void); /* largest resident size so far */
