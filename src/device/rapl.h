/* rapl.h: the energy counters of the machine's processors, in Linux's files of power caps
 * (Documentation/power/powercap/powercap.rst). They count the work of all processes. */
#pragma once

/* Never NULL. `root` as in host_memory_under; it must outlive this. */
struct rapl;
struct rapl *rapl_open(const char *root);
void rapl_close(struct rapl *rapl);               /* accepts NULL */

/* Joules of all packages since it was opened; NAN if there are no counters, or they may not be read. Counters
 * wrap within half an hour of full load: at least one call is needed in that time. */
double rapl_joules(struct rapl *rapl);
