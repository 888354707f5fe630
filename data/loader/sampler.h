/* sampler.h: the order of images: a permutation for each epoch, and each rank's share of every batch.
 *
 * Batches are consecutive ranges of the permutation. In training a partial last batch is dropped, in
 * evaluation it is kept. Each batch is divided among the ranks, so that together they process the same images
 * in each step as a single one would, and no image twice. */
#pragma once

#include "data/dataset/by_class.h"

/* Element i of a pseudo-random permutation of [0, count): computed, not stored (a Feistel network with cycle
 * walking). */
int64_t sampler_permute(uint64_t seed, uint64_t epoch, int64_t count, int64_t i);

/* The image drawn, and how often it was drawn before in the same epoch. */
struct draw {
    int64_t image, repetition;
};

/* Draw i of an epoch in which classes take turns, each in passes over its own images, shuffled. */
struct draw sampler_balance(uint64_t seed, uint64_t epoch, const struct by_class *by, int64_t i);

/* Repeated augmentation (Hoffer et al., Augment your batch, CVPR 2020), as torchvision's RASampler: a batch
 * consists of several copies of fewer images, one copy of all after another, so that ranks have different
 * ones. `image` is the position in the epoch's order. */
struct draw sampler_repeat(int repeats, int batch, int64_t number, int place);

/* The part of a batch's places that is one rank's, of `ranks`: parts follow each other, and differ by one
 * in size where ranks do not divide the batch. */
struct share {
    int first, count;
};
struct share sampler_share(int batch, int ranks, int rank);
