/* check.h: an independent verifier of placements; it shares no code with the packer. */
#pragma once

#include "alloc/pack.h"

/* True when every block that is ever alive is aligned, lies in [0, limit) and overlaps no other
 * alive at the same time; otherwise false and which two. Sweeps over time, so that large tables
 * are checked in seconds. */
bool check_spans(const struct span *spans, int count, int64_t alignment, int64_t limit,
                 struct reason *reason);
