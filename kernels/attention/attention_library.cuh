/* attention_library.cuh: attention by cuDNN, as the autotuner finds it (attention_cudnn.cu). */
#pragma once

#include "kernels/attention/attention.cuh"
#include "kernels/support/autotune.cuh"
#include "kernels/support/planned.cuh"

namespace attention_parts {

/* 16 bits, no windows. */
bool library_takes(const struct call *call, const layout &l);

extern const struct algorithm by_library;

}
