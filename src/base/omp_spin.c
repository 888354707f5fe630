/* omp_spin.c: restarts the program with a short GOMP_SPINCOUNT.
 *
 * At a barrier, libgomp's threads spin for milliseconds before they sleep. If there are more threads than
 * free cores (loader threads, other processes), a spinning thread occupies the core of the thread that it
 * waits for, and small networks train many times slower. SPINS costs an idle machine next to nothing;
 * bench/NOTES.md has the figures.
 *
 * libgomp reads its environment once, before main, and has no function for it. .preinit_array does not help
 * either: the C library sets `environ` later, and an added variable is lost. So the program replaces
 * itself. */
#include "base/omp_spin.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPINS "1000"

/* Valgrind does not follow a program that replaces itself. */
static bool under_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded && strstr(preloaded, "vgpreload");
}

/* The program's file, with its name for process lists. Unknown if it was started by a loader or through a
 * link of another name. */
static bool find_program(char path[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length <= 0) return false;
    path[length] = '\0';
    const char *name = strrchr(path, '/');
    return name && strcmp(name + 1, program_invocation_short_name) == 0;
}

void omp_spin_shorten(char **argv)
{
    char path[PATH_MAX];
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || under_valgrind()) return;
    if (!find_program(path) || setenv("GOMP_SPINCOUNT", SPINS, 1) != 0) return;
    execv(path, argv);
}
