/* check.h: an independent verifier of placements; it shares no code with the packer. */
#pragma once

#include "alloc/pack.h"

/* True if every block that is ever alive is aligned, within [0, limit) and overlaps no other block alive at
 * the same time; otherwise false, with the two blocks. Sweeps over time, so that large tables are checked in
 * seconds. */
bool check_spans(const struct span *spans, int count, int64_t alignment, int64_t limit,
                 struct reason *reason);
