#include "data/targets.h"

#include <assert.h>
#include <string.h>

/* An image's parts: its own class's, and that of the image before it. */
static void target_of_image(const struct target_options *options, const struct mix *mix,
                            const int32_t *labels, int i, float *target)
{
    int before = i % options->together > 0 ? i - 1 : i + options->together - 1;
    int32_t own = labels[i], other = mix ? labels[before] : own;
    float share = mix ? mix->share : 1;
    assert(own >= 0 && own < options->classes && other >= 0 && other < options->classes);
    memset(target, 0, target_numbers(options->classes) * sizeof *target);
    target[own] += share;
    target[other] += 1 - share;
    target[options->classes] = (float)(share >= 0.5f ? own : other);
}

static void smooth(const struct target_options *options, float *target)
{
    double keep = 1 - options->label_smoothing, rest = options->label_smoothing / options->classes;
    for (int c = 0; c < options->classes; c++) target[c] = (float)(keep * target[c] + rest);
}

/* So that the mean over a micro-batch is the sum divided by the sum of its labels' weights; 0 where that is
 * 0. */
static double factor_of(const struct target_options *options, const int32_t *labels)
{
    double sum = 0;
    for (int i = 0; i < options->together; i++) sum += options->weights[labels[i]];
    return sum > 0 ? options->together / sum : 0;
}

static void weigh(const struct target_options *options, double factor, float *target)
{
    for (int c = 0; c < options->classes; c++)
        target[c] = (float)(target[c] * options->weights[c] * factor);
}

void targets_make(const struct target_options *options, const struct mix *mix, const int32_t *labels,
                  int count, float *targets)
{
    double factor = 1;
    assert(count % options->together == 0);
    for (int i = 0; i < count; i++) {
        float *target = targets + (size_t)i * target_numbers(options->classes);
        target_of_image(options, mix, labels, i, target);
        if (options->label_smoothing > 0) smooth(options, target);
        if (!options->weights) continue;
        if (!mix && i % options->together == 0) factor = factor_of(options, labels + i);
        weigh(options, factor, target);
    }
}
