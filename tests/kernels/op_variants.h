/* op_variants.h: an op's examples at odd sizes: few and many channels, pixels and images. */
#pragma once

#include "kernels/op.h"

#define OP_VARIANTS 12

/* The example's settings on other shapes: by `number`, each of 1, 3, 5, 24 channels with each size of 1, 7,
 * 31, and each of both with each of 1, 3, 257 images. False when the op refuses them, or when an earlier
 * example gives the same. */
bool op_variant(const struct op *op, const struct op_example *example, int number,
                struct op_example *variant);
