#include "base/guest.h"

#include <stddef.h>

static _Thread_local const struct guest *now;

void guest_set(const struct guest *guest) { now = guest; }

const struct guest *guest_now(void) { return now; }

bool guest_try(void (*work)(void *context), void *context)
{
    const struct guest *const outer = now;
    jmp_buf no_memory;
    struct guest own;
    if (outer) own = *outer, own.no_memory = &no_memory;
    bool whole = !outer || setjmp(no_memory) == 0;
    if (whole) {
        now = outer ? &own : NULL;
        work(context);
    }
    now = outer;
    return whole;
}
