/* strategy.h: memory.strategy: what a training step keeps, what it makes again and what it moves to the
 * host, to stay within a limit. */
#ifndef SESSION_STRATEGY_H
#define SESSION_STRATEGY_H

#include "compile/program.h"
#include "compile/recompute.h"
#include "session/step.h"

/* Puts recomputation and moves into a training step's program, which has no streams yet, and gives it
 * streams: fewer than the device has where that is what fits. When nothing fits, the program is the smallest
 * that was found: the caller checks (step_check_limit). Bits do not change. */
enum status strategy_apply(const struct setup *setup, struct program *program);

/* The choice that takes the least memory of those that are known: the same for all batches of one
 * octave, so that the largest that fits can be searched for. An octave is named by its smallest number
 * of images a part. */
struct least {
    enum remake *remake;         /* by instruction of the training step as lowered */
    int count;
};
enum status strategy_least(const struct setup *setup, struct least *least);
int strategy_octave(const struct setup *setup);
void strategy_forget(struct least *least);

/* What a run would take with it: `packed`, as strategy_apply would have it within setup_limit, or counting on
 * perfect packing: the arena and the total. Looks at no device. */
enum status strategy_least_bytes(const struct setup *setup, const struct least *least, bool packed,
                                 struct step_bytes *bytes);

/* In words, for a program that was made so: "keep", "recompute" or "offload". */
const char *strategy_name(const struct setup *setup, const struct program *program);

#endif
