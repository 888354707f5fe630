/* strategy.h: memory.strategy: what a training step keeps and what it makes again to stay within a limit. */
#ifndef TRAIN_STRATEGY_H
#define TRAIN_STRATEGY_H

#include "graph/program.h"
#include "train/setup.h"

/* Puts recomputation into a training step's program, which has no lanes yet, and gives it lanes: fewer than
 * the device has where that is what fits. When nothing fits, the program is the smallest that was found:
 * the caller checks (step_check_limit). Bits do not change. */
enum status strategy_apply(const struct setup *setup, struct program *program);

/* In words, for a program that was made so: "keep" or "recompute". */
const char *strategy_name(const struct setup *setup, const struct program *program);

#endif
