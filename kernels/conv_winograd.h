/* conv_winograd.h: 3x3 convolutions of stride 1 on the CPU by Winograd's algorithm. */
#pragma once

#include "op.h"

struct conv_winograd;

/* NULL if the convolution is not supported, or call->variant is another. */
struct conv_winograd *conv_winograd_make(const struct call *call);

/* Whether it is faster for the phase, or call->variant was "winograd". */
bool conv_winograd_takes(const struct conv_winograd *winograd, enum phase phase);

/* Accepts NULL. */
void conv_winograd_free(struct conv_winograd *winograd);

/* As the slots of struct op_code; conv_winograd_run is forward, backward_data and backward_params. */
size_t conv_winograd_workspace(const struct conv_winograd *winograd, const struct call *call);
enum status conv_winograd_run(const struct conv_winograd *winograd, const struct call *call);
