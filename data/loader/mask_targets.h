/* mask_targets.h: what a training step gets with a batch of masks: the labels of its pixels, and for each
 * output of the network the weights of classes, divided by what the whole batch has. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MASK_OUTPUTS_MAX 16

struct mask_targets {
    int classes, h, w;
    int outputs;                   /* of the network; 0: there are no tables */
    int stride[MASK_OUTPUTS_MAX];  /* an output has a pixel for the labels at 0, stride, 2 stride, ... */
    const double *weights;         /* [classes]; NULL: all 1 */
};

/* The block: labels, U8 [images, h, w], then at mask_targets_table tables, F32 [outputs][classes]. */
static inline size_t mask_targets_table(size_t labels) { return (labels + 255) / 256 * 256; }
size_t mask_targets_bytes(const struct mask_targets *targets, int images);

/* counts[outputs][classes]: of the pixels that each output is compared with, without those of MASK_IGNORE. */
void mask_targets_count(const struct mask_targets *targets, const uint8_t *labels, int images,
                        double *counts);

/* Makes the tables behind the labels of `images`, from counts of the whole batch, which has `all` images: a
 * class's weight times all / sum(counts weights). The mean over all images of the sum over pixels of weight
 * times loss is then what PyTorch's loss of the whole batch is, however it is divided. 0 where the sum is. */
void mask_targets_weigh(const struct mask_targets *targets, const double *counts, int images, int all,
                        uint8_t *labels);
