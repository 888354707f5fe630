#include "data/loader/targets.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

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

/* The order of the sum is that of the classes, so no bit depends on how the batch is divided. */
double targets_factor(const struct target_options *options, const double *counts)
{
    double images = 0, sum = 0;
    for (int c = 0; options->weights && c < options->classes; c++) {
        images += counts[c];
        sum += counts[c] * options->weights[c];
    }
    return !options->weights ? 1 : sum > 0 ? images / sum : 0;
}

static void weigh(const struct target_options *options, double factor, float *target)
{
    for (int c = 0; c < options->classes; c++)
        target[c] = (float)(target[c] * options->weights[c] * factor);
}

void targets_make(const struct target_options *options, const struct mix *mix, double factor,
                  const int32_t *labels, int count, float *targets)
{
    assert(count % options->together == 0);
    for (int i = 0; i < count; i++) {
        float *target = targets + (size_t)i * target_numbers(options->classes);
        target_of_image(options, mix, labels, i, target);
        if (options->label_smoothing > 0) smooth(options, target);
        if (options->weights) weigh(options, factor, target);
    }
}

/* From the last image to the first, so that the one before is always as it was. */
static void mix_targets(const struct target_options *options, const struct mix *mix, float *targets)
{
    size_t row = targets_row(options), classes = (size_t)options->classes;
    float *last = memory_new(classes, sizeof *last), share = mix->share;
    memcpy(last, targets + (size_t)(options->together - 1) * row, classes * sizeof *last);
    for (int i = options->together - 1; i >= 0; i--) {
        float *own = targets + (size_t)i * row;
        const float *other = i > 0 ? own - row : last;
        for (size_t c = 0; c < classes; c++) own[c] = share * own[c] + (1 - share) * other[c];
    }
    free(last);
}

static void finish_target(const struct target_options *options, float *target)
{
    double smoothing = options->label_smoothing;
    for (int c = 0; c < options->classes; c++)
        if (options->kind == TARGET_LABELS)
            target[c] = (float)((1 - smoothing) * target[c] + 0.5 * smoothing);
    float *rest = target + options->classes;
    *rest++ = -1;
    bool weighted = targets_row(options) > target_numbers(options->classes);
    for (int c = 0; weighted && c < options->classes; c++) rest[c] = (float)options->weights[c];
}

void targets_finish(const struct target_options *options, const struct mix *mix, int count, float *targets)
{
    size_t row = targets_row(options);
    assert(count % options->together == 0);
    for (int i = 0; i < count; i++) {
        if (mix && i % options->together == 0) mix_targets(options, mix, targets + (size_t)i * row);
        finish_target(options, targets + (size_t)i * row);
    }
}
