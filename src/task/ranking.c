#include "task/ranking.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

static int compare(const void *a, const void *b)
{
    const float *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The positives in ascending order, without NaN. */
static float *sort_positives(const float *values, int64_t stride, const uint8_t *sides, int64_t count,
                             struct ranking *ranking, int64_t *found)
{
    for (int64_t i = 0; i < count; i++) {
        ranking->positives += sides[i] == RANKING_POSITIVE;
        ranking->negatives += sides[i] == RANKING_NEGATIVE;
    }
    float *sorted = memory_new((size_t)ranking->positives + 1, sizeof *sorted);
    *found = 0;
    for (int64_t i = 0; i < count; i++)
        if (sides[i] == RANKING_POSITIVE && !isnan(values[i * stride]))
            sorted[(*found)++] = values[i * stride];
    qsort(sorted, (size_t)*found, sizeof *sorted, compare);
    return sorted;
}

/* How many of them are less than a value, or equal with `equal`. */
static int64_t count_below(const float *sorted, int64_t count, float value, bool equal)
{
    const float *at = sorted;
    while (count > 1) {
        int64_t half = count / 2;
        at += at[half - 1] < value || (equal && at[half - 1] == value) ? half : 0;
        count -= half;
    }
    return at - sorted + (count == 1 && (*at < value || (equal && *at == value)));
}

/* Negatives are not sorted: there are many of them, and each is looked up among the positives, few of many
 * classes. above[k] becomes the number of negatives that k positives, and no
 * more, do not exceed. */
static double place_negatives(const float *values, int64_t stride, const uint8_t *sides, int64_t count,
                              const float *sorted, int64_t found, int64_t *above)
{
    double halves = 0;               /* twice the pairs that are won; sums of integers below 2^53 */
    for (int64_t i = 0; i < count; i++) {
        float value = values[i * stride];
        if (sides[i] != RANKING_NEGATIVE || isnan(value)) continue;
        int64_t high = found > 0 && value >= sorted[0] ? count_below(sorted, found, value, true) : 0;
        bool tied = high > 0 && sorted[high - 1] == value;
        int64_t low = tied ? count_below(sorted, high, value, false) : high;
        halves += (double)(2 * found - high - low);
        above[high]++;
    }
    return halves / 2;
}

/* The sum over positives of the precision at their values. */
static double sum_precisions(const float *sorted, int64_t found, const int64_t *above)
{
    int64_t negatives = 0;
    double sum = 0;
    for (int64_t end = found, begin; end > 0; end = begin) {
        begin = end - 1;
        negatives += above[end];
        while (begin > 0 && sorted[begin - 1] == sorted[end - 1]) begin--;
        int64_t hits = found - begin;
        sum += (double)(end - begin) * (double)hits / (double)(hits + negatives);
    }
    return sum;
}

struct ranking ranking_of(const float *values, int64_t stride, const uint8_t *sides, int64_t count)
{
    struct ranking ranking = {0};
    int64_t found;
    float *sorted = sort_positives(values, stride, sides, count, &ranking, &found);
    int64_t *above = memory_new((size_t)found + 1, sizeof *above);
    double won = place_negatives(values, stride, sides, count, sorted, found, above);
    double positives = (double)ranking.positives, negatives = (double)ranking.negatives;
    ranking.roc_auc = positives > 0 && negatives > 0 ? won / positives / negatives : (double)NAN;
    double sum = sum_precisions(sorted, found, above);
    ranking.average_precision = positives > 0 ? sum / positives : (double)NAN;
    free(sorted);
    free(above);
    return ranking;
}
