/* position.h: the progress of a run: all state besides the store that determines how it continues. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/optimizer.h"
#include "format/safetensors.h"

struct position {
    int64_t epoch;               /* completed epochs */
    int64_t batch;               /* batches done in the one under way */
    /* Sums of the epoch under way, over steps whose loss is finite. */
    double loss_sum;
    int64_t images, correct;
    int64_t skipped;             /* steps */
    int64_t skipped_told;        /* steps, in all, that lines of metrics have told of */
    int64_t bad_images;          /* in training batches, and in the evaluation at the epoch's end */
    double seconds, wait_seconds;
    /* The best evaluation so far, by checkpoint.best. */
    double best;
    int64_t best_epoch;          /* from 1; 0: none yet */
    int64_t epochs_without_gain;
    int64_t seed;
};

/* Takes the value of the evaluation at the end of the epoch under way: whether it is the best so far. A value
 * that is not finite never is, and any that is beats one that is not (as older checkpoints may hold). */
bool position_take_best(struct position *position, double value, bool lower_is_better);

/* Position and optimizer state as texts for a file's metadata, exact to the bit. The pairs go to
 * the end of a growing array. */
void position_print(const struct position *position, const struct optimizer_state *state,
                    struct safetensors_pair **pairs, int *count);

/* The reverse; a missing or bad value is named in the reason. */
bool position_parse(const struct safetensors *file, struct position *position,
                    struct optimizer_state *state, struct reason *reason);
