/* linear.cuh: what the CUDA code of linear and of linear_scale shares. */
#pragma once

#include "kernels/linear/matmul.cuh"

extern "C" {
#include "kernels/linear/linear.h"
}

/* A phase as a product of x, d_y and weights, without bias and addend; our rows are the library's columns. */
static inline struct matmul_problem linear_product(const struct call *call)
{
    const struct tensor *x = &call->x[0];
    int64_t batch = linear_rows(x->shape), inputs = x->shape.c;
    int64_t units = ((const struct linear_settings *)call->settings)->units;
    struct matmul_problem p = {.factor = x->dtype, .result = x->dtype};
    p.tf32 = call->tf32 && x->dtype == F32;
    p.deterministic = call->deterministic;
    if (call->phase == PHASE_FORWARD) {
        p.m = units, p.n = batch, p.k = inputs;
        p.turn_a = true;
    } else if (call->phase == PHASE_BACKWARD_DATA) {
        p.m = inputs, p.n = batch, p.k = units;
    } else {
        p.result = F32;
        p.m = inputs, p.n = units, p.k = batch;
        p.turn_b = true;
    }
    return p;
}
