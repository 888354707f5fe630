/* conv_cpu.h: algorithms of our own for convolutions on the CPU, in the place of the library's. */
#pragma once

#include "kernels/algorithm.h"

/* Tells a kernel plan, of any op on the CPU, that weights do not change any more: what code derives of them
 * (other layouts, transforms) is then computed once, and kept beside the plan's memory. */
void conv_cpu_keep_weights(struct kernel_plan *plan);
void conv_winograd_keep_weights(struct kernel_plan *plan);

extern const struct algorithm conv_depthwise, conv_gemm, conv_gemm_per_image, conv_shifted, conv_winograd;
