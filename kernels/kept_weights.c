#include "kernels/kept_weights.h"

#include <stdlib.h>

#include "base/align.h"
#include "base/memory.h"

#define ALIGNMENT 64

void *kept_weights_of(struct kept_weights *kept, const void *weights, size_t bytes, bool *fresh)
{
    *fresh = true;
    if (!kept->on) return NULL;
    for (int i = 0; i < kept->count; i++) {
        if (kept->list[i].weights != weights) continue;
        *fresh = false;
        return kept->list[i].derived;
    }
    void *derived = aligned_alloc(ALIGNMENT, align_up(bytes, ALIGNMENT));
    if (derived) *array_push(kept->list, kept->count) = (struct kept_weights_of){weights, derived};
    return derived;
}

void kept_weights_free(struct kept_weights *kept)
{
    for (int i = 0; i < kept->count; i++) free(kept->list[i].derived);
    free(kept->list);
}
