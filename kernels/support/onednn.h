/* onednn.h: products with weights, and convolutions, by oneDNN; the differences between its versions 2 and 3
 * are handled here only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/align.h"
#include "base/dtype.h"
#include "base/status.h"
#include "kernels/kept_weights.h"
#include "kernels/op.h"

/* The operands of a phase. In backward phases X and Y, and in PHASE_BACKWARD_PARAMS also WEIGHT and BIAS,
 * stand for the tensors or for their gradients, as in struct call. */
enum onednn_operand { ONEDNN_X, ONEDNN_WEIGHT, ONEDNN_BIAS, ONEDNN_Y, ONEDNN_OPERANDS };

/* A convolution's: index 0 is along h, 1 along w. */
struct onednn_window {
    int64_t stride[2], pad[2], dilation[2];
};

/* One phase of y = w * x + b: a primitive, with reorders between our layouts and the library's. */
struct onednn_step;

/* x is n, h, w, c and y is n, p, q, k; weights are k, c / groups, r, s, or k, c for an inner product, which
 * has no window; a bias without a shape is none. NULL if the library does not support it, or has only a
 * reference implementation for bf16. Activations, weights and biases are of `dtype` (F32 or BF16); gradients
 * of weights and biases are F32. Only descriptors are created here; code is generated at the first run. The
 * number of OpenMP threads is fixed here. */
struct onednn_step *onednn_step_make(const struct tensor operands[ONEDNN_OPERANDS],
                                     const struct onednn_window *window, enum phase phase, enum dtype dtype);
void onednn_step_free(struct onednn_step *step);
size_t onednn_step_workspace(const struct onednn_step *step);
/* Keeps weights in the library's layout, from the next run on. */
void onednn_step_keep_weights(struct onednn_step *step);
enum status onednn_step_run(struct onednn_step *step, void *const data[ONEDNN_OPERANDS], void *workspace);

/* Where operands may begin in a workspace. */
#define ONEDNN_ALIGNMENT 64
static inline size_t onednn_align(size_t bytes)
{
    return align_up(bytes, ONEDNN_ALIGNMENT);
}

/* The library's name of the implementation, for benchmarks. */
const char *onednn_step_name(const struct onednn_step *step);

/* True if this CPU has bf16 products; otherwise widening to fp32 is faster. */
bool onednn_has_bf16(void);

/* True if it has AMX, whose bf16 products are many times as fast as those of fp32. */
bool onednn_has_amx(void);

/* "oneDNN 2.6.3". */
#define ONEDNN_VERSION_TEXT 32
const char *onednn_version(char text[ONEDNN_VERSION_TEXT]);
