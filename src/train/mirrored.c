#include "train/mirrored.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct mirrored mirrored_open(int images, int classes)
{
    return (struct mirrored){
        .classes = classes,
        .logits = memory_new((size_t)images * (size_t)classes, sizeof(float)),
        .losses = memory_new((size_t)images, sizeof(float)),
        .ranks = memory_new((size_t)images, sizeof(int32_t)),
    };
}

void mirrored_close(struct mirrored *mirrored)
{
    free(mirrored->logits);
    free(mirrored->losses);
    free(mirrored->ranks);
}

void mirrored_begin(struct mirrored *mirrored, const float *logits, int images)
{
    memcpy(mirrored->logits, logits, (size_t)images * (size_t)mirrored->classes * sizeof *logits);
}

/* As kernels/softmax_cross_entropy.c. */
static float loss_of(const float *logits, int classes, int32_t label)
{
    double most = -INFINITY, sum = 0;
    for (int c = 0; c < classes; c++) most = fmax(most, logits[c]);
    for (int c = 0; c < classes; c++) sum += exp(logits[c] - most);
    return (float)(most + log(sum) - logits[label]);
}

/* As kernels/topk.c. */
static int32_t rank_of(const float *logits, int classes, int32_t label)
{
    int32_t rank = 0;
    float own = logits[label];
    for (int c = 0; c < classes; c++)
        if (isnan(own)) rank += !isnan(logits[c]) || c < label;
        else rank += logits[c] > own || (logits[c] == own && c < label);
    return rank;
}

void mirrored_end(struct mirrored *mirrored, const float *logits, const int32_t *labels, int images)
{
    int classes = mirrored->classes;
    for (int i = 0; i < images; i++) {
        float *own = mirrored->logits + (int64_t)i * classes;
        const float *other = logits + (int64_t)i * classes;
        for (int c = 0; c < classes; c++) own[c] = 0.5f * (own[c] + other[c]);
        mirrored->losses[i] = labels[i] < 0 ? 0 : loss_of(own, classes, labels[i]);
        mirrored->ranks[i] = labels[i] < 0 ? classes : rank_of(own, classes, labels[i]);
    }
}
