/* call_equal.h: whether the same kernel plan serves two calls. */
#pragma once

#include "kernels/op.h"

/* Compares everything that an op's prepare may read, except settings, which the op knows, and what is the
 * same for all kernel plans of a program: counts, shapes and types of tensors, and flags. Data are not
 * compared. */
bool call_equal(const struct call *a, const struct call *b);
