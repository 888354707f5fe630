/* product.h: CPU code shared by the ops with weight products (conv, linear), using oneDNN. */
#pragma once

#include "kernels/support/onednn.h"
#include "kernels/algorithm.h"

/* Rows of the op's list: "native", in the operands' dtype; "widened", in fp32 on copies; followed in plans'
 * names by the library's name of its implementation. `make` calls product_make, without a window
 * for an inner product; it is false where oneDNN does not support the call. */
#define PRODUCT_ALGORITHM(name_, make_) \
    {.name = (name_), .make = (make_), .release = product_release, .run = product_run}
bool product_make(const struct call *call, const struct onednn_window *window, struct kernel_plan *plan);
void product_release(struct kernel_plan *plan);
enum status product_run(const struct call *call, const struct kernel_plan *plan);
/* Tells a plan of these rows that weights do not change any more. */
void product_keep_weights(struct kernel_plan *plan);

/* `count` elements in another type, on all threads. */
void product_convert(enum dtype to, void *target, enum dtype from, const void *source, int64_t count);
