/* mix.h: mixup and cutmix: each image of a batch is mixed with another one. */
#pragma once

#include <stdbool.h>

#include "base/dtype.h"
#include "base/random.h"
#include "data/image/image.h"

/* Zhang et al., mixup (ICLR 2018); Yun et al., CutMix (ICCV 2019). The parameters of symmetric beta
 * distributions; 0: off. With both, each batch uses one of them, with equal probability. */
struct mix_settings {
    double mixup, cutmix;
};

/* How a batch is mixed: within each micro-batch every image with the one before it, the first with the
 * last, as torchvision does it. */
struct mix {
    int together;              /* images of a micro-batch, which divide the batch's */
    float share;               /* of the image itself */
    bool pasted;               /* cutmix: the box in which the other image is shown */
    struct box box;
};

static inline bool mix_is_on(const struct mix_settings *settings)
{
    return settings->mixup > 0 || settings->cutmix > 0;
}

/* For images of h x w. */
struct mix mix_draw(const struct mix_settings *settings, struct random *random, int h, int w);

/* A batch of images [count, h, w, c] of fp32, fp16 or bf16. */
struct mix_batch {
    void *images;
    enum dtype dtype;
    int count, h, w, c;
};

/* Mixes rows from..from + rows of every image in place. Call it once for each row, in any order. */
void mix_rows(const struct mix *mix, const struct mix_batch *batch, int from, int rows);

/* Beta(alpha, alpha). */
double mix_beta(double alpha, struct random *random);
