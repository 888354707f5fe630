/* conv_gemm.h: convolution on the CPU as explicit matrix products (im2col) of a whole batch or of single
 * images, with which other algorithms are compared. */
#pragma once

#include "op.h"

struct conv_gemm;

/* NULL unless call->variant is one of "gemm" and "gemm-per-image", and the convolution has one group. */
struct conv_gemm *conv_gemm_make(const struct call *call);
void conv_gemm_free(struct conv_gemm *gemm);          /* accepts NULL */
const char *conv_gemm_name(const struct conv_gemm *gemm);

/* As the slots of struct op_code; conv_gemm_run is forward, backward_data and backward_params. */
size_t conv_gemm_workspace(struct conv_gemm *gemm, const struct call *call);
enum status conv_gemm_run(struct conv_gemm *gemm, const struct call *call);
