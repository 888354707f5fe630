/* conv_cpu.h: algorithms of our own for convolutions on the CPU, in the place of the library's. */
#pragma once

#include "kernels/algorithm.h"

/* Of a kernel plan of any op on the CPU: weights do not change any more, so that what code derives of them (other
 * layouts, transforms) is computed once, and kept beside the plan's memory. Many algorithms derive nothing. */
void conv_cpu_keep_weights(struct kernel_plan *plan);
void conv_winograd_keep_weights(struct kernel_plan *plan);

extern const struct algorithm conv_depthwise, conv_gemm, conv_gemm_per_image, conv_shifted, conv_winograd;
