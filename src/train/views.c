#include "train/views.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct views views_open(int images, int classes)
{
    return (struct views){
        .classes = classes,
        .logits = memory_new((size_t)images * (size_t)classes, sizeof(float)),
        .losses = memory_new((size_t)images, sizeof(float)),
        .ranks = memory_new((size_t)images, sizeof(int32_t)),
    };
}

void views_close(struct views *views)
{
    free(views->logits);
    free(views->losses);
    free(views->ranks);
}

void views_add(struct views *views, const float *logits, int images, float weight, bool first)
{
    for (int64_t i = 0; i < (int64_t)images * views->classes; i++)
        views->logits[i] = (first ? 0 : views->logits[i]) + weight * logits[i];
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

void views_end(struct views *views, const int32_t *labels, int images)
{
    int classes = views->classes;
    for (int i = 0; i < images; i++) {
        const float *logits = views->logits + (int64_t)i * classes;
        views->losses[i] = labels[i] < 0 ? 0 : loss_of(logits, classes, labels[i]);
        views->ranks[i] = labels[i] < 0 ? classes : rank_of(logits, classes, labels[i]);
    }
}
