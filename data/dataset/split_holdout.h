/* split_holdout.h: what part of a data set is held out for validation. */
#pragma once

#include <stdint.h>

#define SPLIT_FOLDS_MAX 1000

/* Fold number `fold`, from 1, of `folds`; folds 0: a fraction. */
struct split_holdout {
    uint64_t seed;
    double fraction;
    int fold, folds;
};
