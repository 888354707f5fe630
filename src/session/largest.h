/* largest.h: the largest batch whose training step fits into some memory, found by planning alone. */
#ifndef SESSION_LARGEST_H
#define SESSION_LARGEST_H

#include "base/text.h"
#include "session/setup.h"

/* The most images a step, a multiple of setup->micro_batches and no more than there are to train on, for
 * which fit_memory stays within `limit` bytes, and evaluation does; 0: not even one a micro-batch.
 * setup->batch does not matter. Looks at no device: workspaces are those of a device that is not open, or
 * their bounds. */
enum status largest_batch(const struct setup *setup, int64_t limit, int *batch);

/* The same in words, added to `words`. */
void largest_say(const struct setup *setup, int64_t limit, struct text *words);

/* What of the memory that is free a run without memory.limit counts on when train.batch is auto;
 * 0: not known. Opens the device unless it is the CPU. */
enum status largest_limit(struct setup *setup, int64_t *limit);

#endif
