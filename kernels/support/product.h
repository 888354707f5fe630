/* product.h: CPU code shared by the ops with weight products (conv, linear), using oneDNN. */
#pragma once

#include "kernels/support/onednn.h"
#include "kernels/op.h"

/* Creates the kernel plan. If oneDNN does not support a phase or the dtype, `reference` runs. */
enum status product_prepare(const struct call *call, const struct onednn_problem *problem,
                            const struct op_code *reference, void **kernel_plan);

/* The other slots of struct op_code; product_run is forward, backward_data and backward_params. */
void product_release(void *kernel_plan);
size_t product_workspace(const struct call *call);
enum status product_run(const struct call *call);

/* "native", in the operands' dtype; "widened", in fp32 on copies; followed by the library's name of its
 * implementation. If the library supports neither, the plan's name is "reference". */
extern const char *const product_variants[];
const char *product_plan_name(const struct call *call);

/* `count` elements in another type, on all threads. */
void product_convert(enum dtype to, void *target, enum dtype from, const void *source, int64_t count);
