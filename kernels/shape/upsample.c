/* upsample: enlarges images, as torch.nn.functional.interpolate. Along each axis output o lies at position
 *
 *     nearest                     floor(o * in / out)
 *     bilinear                    max(0, (o + 1/2) * in / out - 1/2)
 *     bilinear, align_corners     o * (in - 1) / (out - 1)
 *
 * of the input; bilinear divides it between the two inputs beside that position. */
#include "kernels/shape/upsample.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kernels/codes_cuda.h"

/* Sizes are int in kernels, and so are products of a size and two. */
#define SIZE_MAX_AXIS (1 << 24)

static bool upsample_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                           struct reason *reason)
{
    const struct upsample *s = settings;
    bool sized = s->size.h > 0;
    if (sized == (s->scale > 0)) return because(reason, "upsample needs one of scale= and size= (or like=)");
    if (s->align_corners && s->mode == UPSAMPLE_NEAREST)
        return because(reason, "align_corners=yes needs mode=bilinear");
    int64_t h = sized ? s->size.h : x->h * s->scale, w = sized ? s->size.w : x->w * s->scale;
    if (h > SIZE_MAX_AXIS || w > SIZE_MAX_AXIS)
        return because(reason, "%lldx%lld pixels are more than 2^24 in a row", (long long)h, (long long)w);
    *y = shape_nhwc(x->n, h, w, x->c);
    return true;
}

static struct upsample_axis axis_of(const struct upsample *s, int64_t in, int64_t out)
{
    struct upsample_axis axis = {.in = (int)in, .out = (int)out, .linear = s->mode == UPSAMPLE_BILINEAR};
    if (s->align_corners) {
        axis.scale = out > 1 ? (float)(in - 1) / (float)(out - 1) : 0;
    } else {
        axis.scale = (float)in / (float)out;
        axis.shift = 0.5f * axis.scale - 0.5f;
    }
    return axis;
}

void upsample_axes(const struct call *call, struct upsample_axis axes[2])
{
    const struct shape *x = &call->x[0].shape, *y = &call->y.shape;
    if (call->phase == PHASE_BACKWARD) x = &call->d_x[0].shape, y = &call->d_y.shape;
    axes[0] = axis_of(call->settings, x->h, y->h);
    axes[1] = axis_of(call->settings, x->w, y->w);
}

/* Adds output pixel h, w of row `row` (image and line) up from its inputs, or adds it to theirs. */
static void spread_pixel(const struct call *call, const struct upsample_axis axes[2], int64_t row, int w,
                         double *sums)
{
    const struct upsample_axis *down = &axes[0], *across = &axes[1];
    bool forward = call->phase == PHASE_FORWARD;
    const struct tensor *from = forward ? &call->x[0] : &call->d_y;
    int64_t channels = from->shape.c, output = row * across->out + w;
    int h = (int)(row % down->out);
    struct upsample_span rows = upsample_inputs(down, h), columns = upsample_inputs(across, w);
    for (int i = rows.first; i < rows.end; i++)
        for (int j = columns.first; j < columns.end; j++) {
            int64_t input = (row / down->out * down->in + i) * across->in + j;
            double share = (double)upsample_share(down, h, i) * (double)upsample_share(across, w, j);
            double *sum = sums + (forward ? output : input) * channels;
            for (int64_t c = 0; c < channels; c++)
                sum[c] += share * tensor_get(from, (forward ? input : output) * channels + c);
        }
}

static enum status upsample_run(const struct call *call)
{
    const struct tensor *to = call->phase == PHASE_FORWARD ? &call->y : &call->d_x[0];
    int64_t count = to->data ? shape_count(to->shape) : 0;
    if (count == 0) return OK;
    struct upsample_axis axes[2];
    upsample_axes(call, axes);
    double *sums = memory_new((size_t)count, sizeof *sums);
    for (int64_t row = 0; row < to->shape.n * axes[0].out; row++)
        for (int w = 0; w < axes[1].out; w++) spread_pixel(call, axes, row, w, sums);
    for (int64_t i = 0; i < count; i++) tensor_set(to, i, sums[i]);
    free(sums);
    return OK;
}

static const char *const modes[] = {"nearest", "bilinear", NULL};
#define AT(member) offsetof(struct upsample, member)
static const struct field fields[] = {
    {.name = "mode", .type = FIELD_CHOICE, .offset = AT(mode), .initial = "nearest", .choices = modes,
     .help = "Interpolation between pixels."},
    {.name = "scale", .type = FIELD_INT, .offset = AT(scale), .initial = "0", .min = 0, .max = 4096,
     .help = "Factor by which height and width grow."},
    {.name = "size", .type = FIELD_IMAGE_SIZE, .offset = AT(size), .initial = "scale",
     .word = "scale", .word_value = 0, .min = 1, .max = SIZE_MAX_AXIS,
     .help = "Height and width of the output, if it is not to be scaled; model files also have like=LAYER, "
             "for those of another layer."},
    {.name = "align_corners", .type = FIELD_BOOL, .offset = AT(align_corners), .initial = "no",
     .help = "For bilinear: the centres of the corner pixels stay in place, instead of the edges."},
    {0},
};

static const struct op_code reference = {.forward = upsample_run, .backward = upsample_run};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"scale=2", 1, {SHAPE(2, 7, 5, 24)}},
    {"scale=3", 1, {SHAPE(1, 3, 4, 5)}},
    {"size=7x9", 1, {SHAPE(2, 3, 5, 8)}},
    {"size=3x2", 1, {SHAPE(1, 7, 5, 3)}},
    {"mode=bilinear scale=2", 1, {SHAPE(2, 7, 5, 24)}},
    {"mode=bilinear scale=8", 1, {SHAPE(1, 4, 3, 16)}},
    {"mode=bilinear size=13x9", 1, {SHAPE(2, 5, 4, 3)}},
    {"mode=bilinear size=3x4", 1, {SHAPE(1, 7, 5, 8)}},
    {"mode=bilinear size=9", 1, {SHAPE(2, 1, 1, 16)}},
    {"mode=bilinear scale=2 align_corners=yes", 1, {SHAPE(2, 7, 5, 24)}},
    {"mode=bilinear size=13x1 align_corners=yes", 1, {SHAPE(2, 4, 3, 5)}},
    {"mode=bilinear size=5x9 align_corners=yes", 1, {SHAPE(1, 1, 3, 1030)}},
    {0},
};

const struct op upsample_op = {
    .name = "upsample",
    .help = "Enlarges images.",
    .settings_size = sizeof(struct upsample),
    .fields = fields,
    .shape = upsample_shape,
    .reference = &reference,
    .cpu = &upsample_cpu,
    .cuda = ON_CUDA(upsample_cuda),
    .examples = examples,
};
