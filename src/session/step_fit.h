/* step_fit.h: checks whether a training step or an evaluation in tiles fits into memory, and finds the
 * largest batch that does, by planning only. */
#pragma once

#include "base/text.h"
#include "session/step.h"

/* NO_DEVICE if its total is more than session_limit. */
enum status step_fit_check(const struct session *session, const struct budget *taken);

/* Fails quickly if a lower bound of the bytes is more: before parameters are initialised and a step is
 * planned. */
enum status step_fit_check_bound(const struct session *session);

/* The most images a step, a multiple of all ranks' micro-batches and no more than there are to train on, for
 * which fit_memory stays within `limit` bytes, and evaluation does; 0: not even one per micro-batch. The
 * session's batch is ignored. Uses no device: workspaces are those of a device that is not open, or their
 * bounds. `exact` as in fit_batch.h. */
enum status step_fit_batch(const struct session *session, int64_t limit, bool exact, int *batch);

/* Appends the same in words to `words`. */
void step_fit_describe(const struct session *session, int64_t limit, struct text *words);

/* The part of the free memory that train.batch=auto uses without memory.limit; 0: unknown. Opens the device
 * unless it is the CPU. */
enum status step_fit_limit(struct session *session, int64_t *limit);

/* The device memory of an evaluation whose arena has that many bytes. */
struct budget step_tiles_taken(const struct session *session, const struct program *program, int64_t arena);

/* Makes batches small enough (session->tile_batch) for the limit of device memory. NO_DEVICE if single tiles
 * do not fit; `training`: evaluations of a training run, whose store and batches are there, too. */
enum status step_fit_tiles(struct session *session, bool training);
