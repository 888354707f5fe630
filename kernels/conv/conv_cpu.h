/* conv_cpu.h: algorithms of our own for convolutions on the CPU, in the place of the library's. */
#pragma once

#include "kernels/algorithm.h"

extern const struct algorithm conv_depthwise, conv_gemm, conv_gemm_per_image, conv_shifted, conv_winograd;
