#include "kernels/pool/pool.h"

#include <math.h>
#include <stddef.h>

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

struct pool_span pool_inputs(const struct pool_axis *a, int64_t output)
{
    if (a->adaptive)
        return (struct pool_span){output * a->in / a->out, divide_up((output + 1) * a->in, a->out), 1, 0};
    int64_t start = output * a->stride - a->pad;
    int64_t skipped = start < 0 ? divide_up(-start, a->dilation) : 0;
    int64_t end = min(start + (a->kernel - 1) * a->dilation + 1, a->in);
    return (struct pool_span){start + skipped * a->dilation, end, a->dilation, skipped};
}

struct pool_span pool_outputs(const struct pool_axis *a, int64_t input)
{
    if (a->adaptive)
        return (struct pool_span){input * a->out / a->in, divide_up((input + 1) * a->out, a->in), 1, 0};
    int64_t reach = (a->kernel - 1) * a->dilation;
    int64_t first = max(input + a->pad - reach, 0);
    int64_t end = min((input + a->pad) / a->stride + 1, a->out);
    return (struct pool_span){divide_up(first, a->stride), end, 1, 0};
}

/* Positions of a window that count in an average that counts the padding, too: all that lie in the
 * input padded on both sides. */
static int64_t padded_count(const struct pool_axis *a, int64_t output)
{
    int64_t start = output * a->stride - a->pad;
    return min(start + a->kernel, a->in + a->pad) - start;
}

/* torch's rule: with ceil_mode a last window that would begin in the padding is omitted. */
static int64_t sliding_count(const struct pool_axis *a, bool ceil_mode)
{
    int64_t room = a->in + 2 * a->pad - a->dilation * (a->kernel - 1) - 1;
    if (room < 0) return 0;
    int64_t last = ceil_mode ? divide_up(room, a->stride) : room / a->stride;
    if (ceil_mode && last * a->stride >= a->in + a->pad) last--;
    return last + 1;
}

static struct pool_axis axis_sliding(const struct pool *pool, int64_t in)
{
    struct pool_axis axis = {
        .in = in,
        .kernel = pool->kernel,
        .stride = pool->stride ? pool->stride : pool->kernel,
        .pad = pool->pad,
        .dilation = pool->dilation ? pool->dilation : 1,
    };
    axis.out = sliding_count(&axis, pool->ceil_mode);
    return axis;
}

static struct pool_axis axis_bins(int64_t in, int64_t out)
{
    return (struct pool_axis){.in = in, .out = out, .adaptive = true};
}

struct pool_plane pool_sliding(const struct call *call)
{
    const struct pool *s = call->settings;
    struct shape x = call->x[0].shape;
    return (struct pool_plane){axis_sliding(s, x.h), axis_sliding(s, x.w), s->count_include_pad, false};
}

struct pool_plane pool_halves(struct shape x, struct shape pooled)
{
    return (struct pool_plane){
        .h = {.in = x.h, .out = pooled.h, .kernel = 2, .stride = 2, .dilation = 1},
        .w = {.in = x.w, .out = pooled.w, .kernel = 2, .stride = 2, .dilation = 1},
    };
}

bool pool_is_halves(const struct pool *pool)
{
    struct pool_axis axis = axis_sliding(pool, 2);
    return axis.kernel == 2 && axis.stride == 2 && axis.pad == 0 && axis.dilation == 1;
}

struct pool_plane pool_relu(const struct call *call)
{
    struct pool_plane plane = pool_sliding(call);
    plane.relu = true;
    return plane;
}

struct pool_plane pool_bins(const struct call *call)
{
    const struct pool_bins *s = call->settings;
    struct shape x = call->x[0].shape;
    return (struct pool_plane){axis_bins(x.h, s->size), axis_bins(x.w, s->size), false, false};
}

struct pool_plane pool_global(const struct call *call)
{
    struct shape x = call->x[0].shape;
    return (struct pool_plane){axis_bins(x.h, 1), axis_bins(x.w, 1), false, false};
}

bool pool_sliding_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                        struct reason *reason)
{
    const struct pool *pool = settings;
    if (2 * pool->pad > pool->kernel)
        return because(reason, "pad must be at most half of the kernel, %lld", (long long)pool->kernel / 2);
    struct pool_axis h = axis_sliding(pool, x->h), w = axis_sliding(pool, x->w);
    if (h.out < 1 || w.out < 1)
        return because(reason, "a window of %lld does not fit an image of %lldx%lld", (long long)pool->kernel,
                       (long long)x->h, (long long)x->w);
    *y = shape_nhwc(x->n, h.out, w.out, x->c);
    return true;
}

const struct field pool_bins_fields[] = {
    {.name = "size", .type = FIELD_INT, .offset = offsetof(struct pool_bins, size),
     .min = 1, .max = 4096, .help = "Height and width of the output."},
    {0},
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
const struct op_example pool_bins_examples[] = {
    {"size=7", 1, {SHAPE(1, 7, 7, 5)}},
    {"size=3", 1, {SHAPE(3, 7, 31, 24)}},
    {"size=7", 1, {SHAPE(1, 3, 5, 3)}},
    {"size=1", 1, {SHAPE(3, 7, 5, 1)}},
    {0},
};

bool pool_bins_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                     struct reason *reason)
{
    const struct pool_bins *s = settings;
    *y = shape_nhwc(x->n, s->size, s->size, x->c);
    return true;
}

unsigned pool_reads_saved(const void *settings, enum phase phase)
{
    return READS_SAVED;
}

static int64_t span_count(struct pool_span span) { return divide_up(span.end - span.first, span.step); }

double pool_divisor(const struct pool_plane *plane, int64_t h, int64_t w)
{
    if (plane->count_padding)
        return (double)(padded_count(&plane->h, h) * padded_count(&plane->w, w));
    return (double)(span_count(pool_inputs(&plane->h, h)) * span_count(pool_inputs(&plane->w, w)));
}

enum status pool_average(const struct call *call, const struct pool_plane *plane)
{
    struct shape y = call->y.shape;
    for (int64_t n = 0; n < y.n; n++)
    for (int64_t h = 0; h < y.h; h++)
    for (int64_t w = 0; w < y.w; w++)
    for (int64_t c = 0; c < y.c; c++) {
        struct pool_span rows = pool_inputs(&plane->h, h), columns = pool_inputs(&plane->w, w);
        double sum = 0;
        for (int64_t i = rows.first; i < rows.end; i++)
            for (int64_t j = columns.first; j < columns.end; j++)
                sum += tensor_get(&call->x[0], tensor_at(&call->x[0], n, i, j, c));
        tensor_set(&call->y, tensor_at(&call->y, n, h, w, c), sum / pool_divisor(plane, h, w));
    }
    return OK;
}

enum status pool_average_backward(const struct call *call, const struct pool_plane *plane)
{
    if (!call->d_x[0].data) return OK;
    struct shape x = call->d_x[0].shape;
    for (int64_t n = 0; n < x.n; n++)
    for (int64_t h = 0; h < x.h; h++)
    for (int64_t w = 0; w < x.w; w++)
    for (int64_t c = 0; c < x.c; c++) {
        struct pool_span rows = pool_outputs(&plane->h, h), columns = pool_outputs(&plane->w, w);
        double sum = 0;
        for (int64_t i = rows.first; i < rows.end; i++)
            for (int64_t j = columns.first; j < columns.end; j++)
                sum += tensor_get(&call->d_y, tensor_at(&call->d_y, n, i, j, c)) / pool_divisor(plane, i, j);
        tensor_set(&call->d_x[0], tensor_at(&call->d_x[0], n, h, w, c), sum);
    }
    return OK;
}

int pool_maximum_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                       struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    struct shape y;
    struct reason reason;
    if (!pool_sliding_shape(settings, 1, &x[0].shape, &y, &reason)) return 0;
    out[0] = (struct op_saved){"number", U8, y};
    return 1;
}

static void maximum_of_window(const struct call *call, const struct pool_plane *plane, int64_t n, int64_t h,
                              int64_t w, int64_t c)
{
    struct pool_span rows = pool_inputs(&plane->h, h), columns = pool_inputs(&plane->w, w);
    double best = -INFINITY;
    int64_t number = pool_number(plane, h, w, rows.first, columns.first);
    for (int64_t i = rows.first; i < rows.end; i += rows.step)
        for (int64_t j = columns.first; j < columns.end; j += columns.step) {
            double value = tensor_get(&call->x[0], tensor_at(&call->x[0], n, i, j, c));
            if (value <= best) continue;
            if (isnan(best) && !isnan(value)) continue;
            best = value;
            number = pool_number(plane, h, w, i, j);
        }
    int64_t at = tensor_at(&call->y, n, h, w, c);
    if (plane->relu && best <= 0) {
        best = 0;
        number = POOL_NOWHERE;
    }
    tensor_set(&call->y, at, best);
    if (call->saved_count) tensor_set(&call->saved[0], at, (double)number);
}

enum status pool_maximum(const struct call *call, const struct pool_plane *plane)
{
    struct shape y = call->y.shape;
    for (int64_t n = 0; n < y.n; n++)
    for (int64_t h = 0; h < y.h; h++)
    for (int64_t w = 0; w < y.w; w++)
    for (int64_t c = 0; c < y.c; c++) maximum_of_window(call, plane, n, h, w, c);
    return OK;
}

enum status pool_maximum_backward(const struct call *call, const struct pool_plane *plane)
{
    if (!call->d_x[0].data) return OK;
    struct shape x = call->x[0].shape;
    for (int64_t n = 0; n < x.n; n++)
    for (int64_t h = 0; h < x.h; h++)
    for (int64_t w = 0; w < x.w; w++)
    for (int64_t c = 0; c < x.c; c++) {
        struct pool_span rows = pool_outputs(&plane->h, h), columns = pool_outputs(&plane->w, w);
        double sum = 0;
        for (int64_t i = rows.first; i < rows.end; i++)
            for (int64_t j = columns.first; j < columns.end; j++) {
                int64_t at = tensor_at(&call->d_y, n, i, j, c);
                if ((int64_t)tensor_get(&call->saved[0], at) == pool_number(plane, i, j, h, w))
                    sum += tensor_get(&call->d_y, at);
            }
        tensor_set(&call->d_x[0], tensor_at(&call->d_x[0], n, h, w, c), sum);
    }
    return OK;
}
