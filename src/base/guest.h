/* guest.h: the thread of a library's call, which is a guest in someone else's process: lines of the log are
 * given to the caller instead of being shown, and environment variables are not asked. */
#pragma once

#include <setjmp.h>
#include <stdbool.h>

struct guest {
    /* Gets the log's lines of the thread, with their enum log_level. NULL: they are lost. */
    void (*write)(void *context, int level, const char *line);
    void *context;
    const char *data, *cache;    /* the folders of search_paths.h; NULL: beside the library; none */
    jmp_buf *no_memory;          /* where memory_none continues, with 1; NULL: it ends the process */
};

/* This thread's guest from now on, which must outlive its use; NULL: the thread belongs to the program
 * itself. Threads that a guest starts (signals_start_thread) are guests whose lines are lost. */
void guest_set(const struct guest *guest);
const struct guest *guest_now(void);

/* Calls `work`. False if the thread is a guest and memory_none ended it: what it allocated and locked stays
 * so. */
bool guest_try(void (*work)(void *context), void *context);
