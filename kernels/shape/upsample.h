/* upsample.h: the inputs that an output of upsample is made of, along one axis, as
 * torch.nn.functional.interpolate has them; on the CPU and in CUDA kernels. */
#pragma once

#include "base/anywhere.h"
#include "kernels/op.h"

enum upsample_mode { UPSAMPLE_NEAREST, UPSAMPLE_BILINEAR };

struct upsample {
    int mode;
    int64_t scale;             /* 0: the size is given */
    struct image_size size;    /* h 0: by `scale` */
    bool align_corners;
};

struct upsample_axis {
    int in, out;
    bool linear;               /* else the nearest */
    float scale, shift;        /* output o lies at o * scale + shift of the input */
};

/* Positions first .. end - 1. */
struct upsample_span {
    int first, end;
};

ANYWHERE float upsample_position(const struct upsample_axis *axis, int output)
{
    float at = rounded_sum(rounded_product((float)output, axis->scale), axis->shift);
    return at > 0 ? at : 0;
}

/* The first of the one or two inputs that make an output. */
ANYWHERE int upsample_first(const struct upsample_axis *axis, int output)
{
    if (!axis->linear) return (int)((int64_t)output * axis->in / axis->out);
    int first = (int)upsample_position(axis, output);
    return first < axis->in - 1 ? first : axis->in - 1;
}

ANYWHERE struct upsample_span upsample_inputs(const struct upsample_axis *axis, int output)
{
    int first = upsample_first(axis, output), end = first + 1 + axis->linear;
    struct upsample_span span = {first, end < axis->in ? end : axis->in};
    return span;
}

/* The input's share of the output, for any of its span: 0 if it has none. */
ANYWHERE float upsample_share(const struct upsample_axis *axis, int output, int input)
{
    int first = upsample_first(axis, output);
    if (!axis->linear) return input == first;
    float rest = upsample_position(axis, output) - (float)first;
    if (first == axis->in - 1) rest = 0;
    return input == first ? 1 - rest : input == first + 1 ? rest : 0;
}

/* Outputs among which all are that the input has a share of; at either end there may be one that has none of
 * it. */
ANYWHERE struct upsample_span upsample_outputs(const struct upsample_axis *axis, int input)
{
    int64_t in = axis->in, out = axis->out, reach = axis->linear;
    if (axis->linear && axis->shift == 0) in = in > 1 ? in - 1 : 1, out = out > 1 ? out - 1 : 1;
    int64_t first = (input - reach) * out / in - 1, end = ((input + 1 + reach) * out + in - 1) / in + 1;
    if (first < 0 || input < reach) first = 0;
    struct upsample_span span = {(int)first, (int)(end < axis->out ? end : axis->out)};
    return span;
}

/* The axes of a call: h, then w. */
void upsample_axes(const struct call *call, struct upsample_axis axes[2]);

extern const struct op_code upsample_cpu;
