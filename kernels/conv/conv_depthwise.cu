/* conv_depthwise.cu: depthwise convolution as an algorithm, whose candidates are tiles: kernels of 3x3, 5x5
 * and 7x7 with padding k / 2, stride 1 or 2; of 7x7 only stride 1, and not its gradient of weights; of 3x3 in
 * 16 bits also both gradients at once. */
#include "kernels/conv/conv_depthwise.cuh"

extern "C" {
#include "base/memory.h"
}

#define TILES 12                     /* candidates, at most */
#define TILE_NAME "depthwise %dx%d across %d down %d slots %d stagers %d segments %d"

/* Numbers that every block sums for every channel. */
static int share_numbers(const struct conv_call *p)
{
    if (p->phase == PHASE_BACKWARD_PARAMS) return p->kernel[0] * p->kernel[1];
    if (p->phase == PHASE_BACKWARD) return p->kernel[0] * p->kernel[1] + conv_clips(p->call);
    return conv_gives_moments(p->call) ? 2 : 0;
}

static bool is_ours(const struct conv_call *p)
{
    int k = p->kernel[0], stride = p->stride[0];
    if (p->groups != p->c || p->k != p->c) return false;
    if ((k != 3 && k != 5 && k != 7) || (stride != 1 && stride != 2)) return false;
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != k || p->pad[i] != k / 2 || p->dilation[i] != 1 || p->stride[i] != stride)
            return false;
    return true;
}

static bool depthwise_supports(const struct call *call)
{
    const struct conv_call p = conv_call_of(call);
    return is_ours(&p);
}

static int depthwise_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    const struct conv_call p = conv_call_of(call);
    struct depthwise_tile tiles[TILES];
    int count = depthwise_tiles(&p, cuda_facts(call->device), most < TILES ? most : TILES, tiles);
    for (int i = 0; i < count; i++) {
        const struct depthwise_tile *t = &tiles[i];
        snprintf(names[i], PLAN_NAME, TILE_NAME, t->channels, t->columns, t->across, t->down, t->slots,
                 t->stagers, t->segments);
    }
    return count;
}

static bool depthwise_make(const struct call *call, struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    const struct cuda_facts *facts = cuda_facts(call->device);
    struct depthwise_tile t;
    struct depthwise_plan made;
    int read = sscanf(plan->name, TILE_NAME, &t.channels, &t.columns, &t.across, &t.down, &t.slots,
                      &t.stagers, &t.segments);
    if (read != 7 || !depthwise_plan_of(&p, facts, &t, &made)) return false;
    /* This applies to all plans of a kernel. */
    int allowed = (int)(facts->shared_bytes - sizeof(struct depthwise_ring));
    if (cudaFuncSetAttribute((const void *)made.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             allowed)) {
        cudaGetLastError();
        return false;
    }
    plan->workspace = (size_t)made.grid.y * p.c * share_numbers(&p) * sizeof(float);
    plan->epilogues = ~AS_BIT(EPILOGUE_RELU) & ~AS_BIT(EPILOGUE_ADD);
    plan->state = memory_new(1, sizeof made);
    *(struct depthwise_plan *)plan->state = made;
    return true;
}

/* Sums of the blocks' shares for both gradients: the weights', and, if requested, sums of d_x. */
static enum status sum_both(const struct conv_call *p, const float *shares, int count)
{
    const struct call *call = p->call;
    int numbers = p->c * p->kernel[0] * p->kernel[1];
    TRY(columns_finish(call, {shares, count, 1, numbers}, (float *)call->d_params[0].data));
    if (!conv_clips(call)) return OK;
    float *sums = (float *)call_data(call, OPERAND_D_X_SUMS);
    return columns_finish(call, {shares + (int64_t)count * numbers, count, 1, p->c}, sums);
}

static enum status depthwise_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    const struct depthwise_plan *made = (const struct depthwise_plan *)plan->state;
    bool data = p.phase == PHASE_BACKWARD_DATA, weights = p.phase == PHASE_BACKWARD_PARAMS;
    bool both = p.phase == PHASE_BACKWARD;
    void *x = conv_x(call), *y = conv_y(call);
    struct depthwise_operands o = {
        .to = both ? call->d_x[0].data : data ? x : y,
        .from = data ? y : x,
        .d_y = y,
        .weight = conv_weight(call),
        .bias = conv_bias(call),
        .turned = data,
        .shares = share_numbers(&p) > 0 ? (float *)call->workspace : NULL,
    };
    made->kernel<<<made->grid, (unsigned)made->threads, made->shared, stream_of(call)>>>(made->layout, o);
    TRY(launched(call));
    if (!o.shares) return OK;
    if (both) return sum_both(&p, o.shares, (int)made->grid.y);
    float *to = (float *)(weights ? conv_weight(call) : call_data(call, OPERAND_Y_MOMENTS));
    return columns_finish(call, {o.shares, (int)made->grid.y, 1, p.c * share_numbers(&p)}, to);
}

const struct algorithm conv_by_depthwise = {
    .name = "depthwise",
    .supports = depthwise_supports,
    .candidates = depthwise_candidates,
    .make = depthwise_make,
    .run = depthwise_run,
};
