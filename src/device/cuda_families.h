/* cuda_families.h: families of kernel plans that differ only in how they split the work, identified by name.
 *
 * All members of some families take a hundred times as long as the best plan for every problem: a family for
 * which this was seen a few times, and never the contrary, is not timed again while the device is open. */
#pragma once

#include <stdbool.h>

struct families;

/* Never NULL. For one thread at a time. */
struct families *families_new(void);
void families_free(struct families *families);

enum family_result {
    FAMILY_NEAR,             /* a member came near the best time */
    FAMILY_BETWEEN,
    FAMILY_FAR,              /* it was far from it */
};
void families_learn(struct families *families, const char *name, enum family_result result);
bool families_hopeless(const struct families *families, const char *name);
