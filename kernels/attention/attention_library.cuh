/* attention_library.cuh: attention by cuDNN, as the autotuner finds it (attention_cudnn.cu). */
#pragma once

#include "kernels/attention/attention.cuh"
#include "kernels/support/autotune.cuh"

namespace attention_parts {

struct library_attention;

/* 16 bits, no windows. */
bool library_takes(const struct call *call, const layout &l);

/* As autotune_functions has them; call and layout have the shapes. */
int library_candidates(const struct call *call, const layout &l, bool backward, cudnnHandle_t handle,
                       int most, char names[][CANDIDATE_NAME]);
struct library_attention *library_make(const struct call *call, const layout &l, bool backward,
                                       cudnnHandle_t handle, const char *name, size_t *workspace);
void library_free(struct library_attention *made);
cudnnStatus_t library_run(struct library_attention *made, const struct call *call, cudnnHandle_t handle);

}
