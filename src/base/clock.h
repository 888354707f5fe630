/* clock.h: time as a person at the wall would measure it, and the memory that this process took. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

double clock_seconds(void);          /* monotonic, from an arbitrary moment */
double clock_since_start(void);      /* since this process began */
int64_t clock_host_peak_bytes(void); /* largest resident size so far */

#endif
