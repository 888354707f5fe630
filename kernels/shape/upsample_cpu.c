/* upsample_cpu.c: each pixel that is written gathers what it is made of, in one order, with rows distributed
 * over threads. */
#include "kernels/cpu.h"
#include "kernels/shape/upsample.h"

/* The direction: from inputs to outputs, or gradients back. */
struct gather {
    const struct tensor *to, *from;
    struct upsample_axis axes[2];
    bool forward;
};

static struct upsample_span span_of(const struct gather *g, int axis, int at)
{
    return g->forward ? upsample_inputs(&g->axes[axis], at) : upsample_outputs(&g->axes[axis], at);
}

static float share_of(const struct gather *g, int axis, int at, int from)
{
    return g->forward ? upsample_share(&g->axes[axis], at, from) : upsample_share(&g->axes[axis], from, at);
}

static EVERY_MACHINE(void, add_share, (float *sum, const float *x, float share, int64_t count),
                     (sum, x, share, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sum[i] += share * x[i];
}

static void gather_pixel(const struct gather *g, int64_t row, int w, int64_t first, int64_t count)
{
    ALIGNED float sum[BLOCK] = {0}, buffer[BLOCK];
    struct shape to = g->to->shape, from = g->from->shape;
    int h = (int)(row % to.h);
    struct upsample_span rows = span_of(g, 0, h), columns = span_of(g, 1, w);
    for (int i = rows.first; i < rows.end; i++) {
        float down = share_of(g, 0, h, i);
        for (int j = columns.first; down != 0 && j < columns.end; j++) {
            float share = down * share_of(g, 1, w, j);
            int64_t at = ((row / to.h * from.h + i) * from.w + j) * from.c + first;
            if (share != 0) add_share(sum, block_load(g->from, at, count, buffer), share, count);
        }
    }
    dtype_convert(g->to->dtype, block_address(g->to, (row * to.w + w) * to.c + first), F32, sum,
                  (size_t)count);
}

static enum status upsample_cpu_run(const struct call *call)
{
    struct gather g = {.to = &call->y, .from = &call->x[0], .forward = call->phase == PHASE_FORWARD};
    if (!g.forward) g.to = &call->d_x[0], g.from = &call->d_y;
    if (!g.to->data) return OK;
    upsample_axes(call, g.axes);
    struct shape to = g.to->shape;
#pragma omp parallel for schedule(static) if (shape_count(to) > PARALLEL)
    for (int64_t row = 0; row < to.n * to.h; row++)
        for (int w = 0; w < to.w; w++)
            for (int64_t c = 0; c < to.c; c += BLOCK) gather_pixel(&g, row, w, c, min_count(BLOCK, to.c - c));
    return OK;
}

const struct op_code upsample_cpu = {.forward = upsample_cpu_run, .backward = upsample_cpu_run};
