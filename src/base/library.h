/* library.h: shared libraries that are opened when they are needed, so that the program starts in
 * milliseconds, and also where they are not installed. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

/* Opens the library with this file name, which then stays open until the process ends, and looks up its
 * functions `names`, ended by NULL: their addresses become the members of the struct *functions, in the same
 * order. False if the library, or one of them, is not there: its member is then NULL, as all behind it. */
bool library_open(const char *file, const char *const names[], void *functions, struct reason *why);

/* Members and names for a list of functions that their headers declare: FUNCTIONS(X) is X(ncclSend)
 * X(ncclRecv) and so on: struct {FUNCTIONS(LIBRARY_MEMBER)} holds them, {FUNCTIONS(LIBRARY_NAME) NULL} are
 * their names. */
#define LIBRARY_MEMBER(name) __typeof__(&name) name;
#define LIBRARY_NAME(name) #name,

/* Defines, for struct NAME of such members, what any thread may call: NAME_open, which opens the library once
 * in the process, and NAME(), its functions; NULL if it is not open. LINKAGE is extern or static. */
#define LIBRARY_ONCE(LINKAGE, NAME, FILE, FUNCTIONS)                                                        \
    static struct {                                                                                         \
        pthread_once_t once;                                                                                \
        bool open;                                                                                          \
        struct reason why;                                                                                  \
        struct NAME functions;                                                                              \
    } NAME##_state = {.once = PTHREAD_ONCE_INIT};                                                           \
    static void NAME##_load(void)                                                                           \
    {                                                                                                       \
        static const char *const names[] = {FUNCTIONS(LIBRARY_NAME) NULL};                                  \
        NAME##_state.open = library_open(FILE, names, &NAME##_state.functions, &NAME##_state.why);          \
    }                                                                                                       \
    LINKAGE bool NAME##_open(struct reason *why)                                                            \
    {                                                                                                       \
        pthread_once(&NAME##_state.once, NAME##_load);                                                      \
        return NAME##_state.open || because(why, "%s", NAME##_state.why.text);                              \
    }                                                                                                       \
    LINKAGE const struct NAME *NAME(void) { return NAME##_state.open ? &NAME##_state.functions : NULL; }

/* The file name of a library of Linux: the version is that of its interface. */
#define LIBRARY_TEXT(number) #number
#define LIBRARY_FILE(name, version) "lib" name ".so." LIBRARY_TEXT(version)
