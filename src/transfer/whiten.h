/* whiten.h: init=whiten: initialises convolutions of the input as a whitening of image patches. */
#pragma once

#include "data/loader/loader.h"
#include "exec/store.h"
#include "input/data.h"

/* USAGE if a layer does not support it. */
enum status whiten_check(const struct graph *graph);

/* True if a convolution has init=whiten. */
bool whiten_is_needed(const struct graph *graph);

/* Sets the weights of every convolution with init=whiten: filter i is eigenvector i of the second moments of
 * patches of training images, largest eigenvalue first, divided by the root of its eigenvalue; filters beyond
 * the size of a patch are the negatives of the first ones. So the outputs of these filters are uncorrelated,
 * with variance 1 (Page 2018; Jordan 2024). The images are the first ones of the first epoch, augmented as in
 * training, which the loader reads as fp32 numbers. */
enum status whiten_store(const struct data *data, struct loader *loader, struct store *store);

/* Decomposes the symmetric `a`, [n][n], which is overwritten: eigenvalues, the largest first, and
 * eigenvectors, rows of `vectors`, [n][n]. */
void whiten_eigenvectors(int n, double *a, double *values, double *vectors);
