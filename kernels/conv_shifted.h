/* conv_shifted.h: weight gradients in bf16 on the CPU, as a matrix product over pixels for each element of
 * the kernel. */
#pragma once

#include "op.h"

struct conv_shifted;

/* NULL if the CPU or the convolution is not supported, or call->variant is another. */
struct conv_shifted *conv_shifted_make(const struct call *call);

/* Whether it is faster for the phase, or call->variant was "shifted". */
bool conv_shifted_takes(const struct conv_shifted *shifted, enum phase phase);

/* Accepts NULL. */
void conv_shifted_free(struct conv_shifted *shifted);

/* As the slots of struct op_code; conv_shifted_run is backward_params. */
size_t conv_shifted_workspace(const struct conv_shifted *shifted, const struct call *call);
enum status conv_shifted_run(const struct conv_shifted *shifted, const struct call *call);
