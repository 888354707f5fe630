/* programs.h: a run's two programs, in what memory there is for them. */
#ifndef TRAIN_PROGRAMS_H
#define TRAIN_PROGRAMS_H

#include "train/run.h"

/* Plans run->training and, where there is something to evaluate on, run->evaluation, which shares its memory,
 * and takes that. Both are planned before any memory is taken; where the device then has not enough, both
 * are planned anew for what it has left, and a line says so: what is kept and what is made again changes, and
 * no bit of the results. run->bytes is what came of it. NO_DEVICE, with a table, when nothing fits. */
enum status programs_open(struct run *run);
void programs_close(struct run *run);     /* accepts half-built ones */

/* Plans and takes memory anew for a memory.limit that the configuration file has by now, while no step is
 * under way. When that fails, the run keeps to what it had; only if that is gone meanwhile, it ends. */
enum status programs_reread(struct run *run);

#endif
