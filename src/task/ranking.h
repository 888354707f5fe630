/* ranking.h: how well values tell the images of one class from all others, whatever the threshold: ROC AUC
 * and average precision, as scikit-learn defines them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum ranking_side { RANKING_NEGATIVE, RANKING_POSITIVE, RANKING_NONE /* does not count */ };

struct ranking {
    int64_t positives, negatives;
    /* The share of the pairs of a positive and a negative in which the positive has the larger value, equal
     * ones counting half. NAN if one of the sides is empty. */
    double roc_auc;
    /* The area below the steps of precision over recall, where equal values are one step. NAN without
     * positives. */
    double average_precision;
};

/* Ranks `count` values, `stride` apart, with the side of each. A value that is NaN is found at no threshold,
 * and its pairs are lost. It takes the memory of the positives. */
struct ranking ranking_of(const float *values, int64_t stride, const uint8_t *sides, int64_t count);
