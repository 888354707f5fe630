/* linear.h: the linear layer's settings as its code on each device reads them. */
#pragma once

#include "kernels/op.h"
#include "kernels/support/weight.h"

struct linear_settings {
    int64_t units;
    bool per_pixel;
    struct weight_settings weight;
};

/* The number of vectors: images, or pixels. */
static inline int64_t linear_rows(struct shape shape) { return shape.n * shape.h * shape.w; }

extern const struct op_code linear_reference, linear_cpu;
extern const struct op linear_op;

/* Shared by linear and linear_scale, whose parameters are linear's and, last, scale's. */
extern const struct field linear_fields[];
bool linear_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                  struct reason *reason);
bool linear_supports(const struct call *call);   /* op_code.supports of their plain loops */
bool linear_is_packed(const struct call *call);  /* rows are whole packs, as cuBLASLt's faster code asks in 16
                                                  * bits */
