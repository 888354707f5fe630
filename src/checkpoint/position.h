/* position.h: the progress of a run: all state besides the store that determines how it continues. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/optimizer/optimizer.h"
#include "format/safetensors.h"

struct position {
    int64_t epoch;               /* completed epochs */
    int64_t batch;               /* batches done in the current epoch */
    /* Sums over the current epoch's steps with a finite loss. */
    double loss_sum;
    int64_t images, correct;
    int64_t skipped;             /* steps */
    int64_t skipped_told;        /* skipped steps reported in lines of metrics so far */
    int64_t bad_images;          /* in training batches, and in the evaluation at the epoch's end */
    double seconds, wait_seconds;
    /* The best evaluation so far, by checkpoint.best. */
    double best;
    int64_t best_epoch;          /* from 1; 0: none yet */
    int64_t epochs_without_gain;
    int64_t seed;
    struct plateau {             /* schedule.name = plateau */
        double lr, best;         /* the current rate, 0: the first one; the smallest loss so far */
        int64_t bad, cooldown;   /* evaluations without a smaller one; those left in which none counts */
    } plateau;
    int64_t swa_epoch;           /* the last epoch whose weights are in the average (train.swa) */
};

/* Records the result of the evaluation at the end of the current epoch; returns whether it is the best so
 * far. A value that is not finite never is, and any finite value is better than one that is not (which older
 * checkpoints may contain). */
bool position_update_best(struct position *position, double value, bool lower_is_better);

/* Position and optimizer state as texts for a file's metadata, exact to the bit; appends the pairs to a
 * growing array. */
void position_print(const struct position *position, const struct optimizer_state *state,
                    struct safetensors_pair **pairs, int *count);

/* The reverse; a missing or bad value is named in the reason. */
bool position_parse(const struct safetensors *file, struct position *position,
                    struct optimizer_state *state, struct reason *reason);
