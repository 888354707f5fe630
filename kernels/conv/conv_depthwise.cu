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
static int share_numbers(const struct conv_problem *p)
{
    if (p->phase == PHASE_BACKWARD_PARAMS) return p->kernel[0] * p->kernel[1];
    if (p->phase == PHASE_BACKWARD) return p->kernel[0] * p->kernel[1] + p->clips;
    return p->sums ? 2 : 0;
}

static bool is_ours(const struct conv_problem *p)
{
    int k = p->kernel[0], stride = p->stride[0];
    if (p->groups != p->c || p->k != p->c) return false;
    if ((k != 3 && k != 5 && k != 7) || (stride != 1 && stride != 2)) return false;
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != k || p->pad[i] != k / 2 || p->dilation[i] != 1 || p->stride[i] != stride)
            return false;
    return true;
}

static int depthwise_candidates(const struct conv_problem *problem, const struct conv_tools *tools, int most,
                                char names[][CANDIDATE_NAME])
{
    struct depthwise_tile tiles[TILES];
    if (!is_ours(problem)) return 0;
    int count = depthwise_tiles(problem, cuda_facts(tools->device), most < TILES ? most : TILES, tiles);
    for (int i = 0; i < count; i++) {
        const struct depthwise_tile *t = &tiles[i];
        snprintf(names[i], CANDIDATE_NAME, TILE_NAME, t->channels, t->columns, t->across, t->down, t->slots,
                 t->stagers, t->segments);
    }
    return count;
}

static bool depthwise_make(struct conv_plan *plan, const struct conv_tools *tools)
{
    const struct conv_problem *p = &plan->problem;
    struct depthwise_tile t;
    struct depthwise_plan made;
    int read = sscanf(plan->name, TILE_NAME, &t.channels, &t.columns, &t.across, &t.down, &t.slots,
                      &t.stagers, &t.segments);
    if (!is_ours(p) || read != 7) return false;
    if (!depthwise_plan_of(p, cuda_facts(tools->device), &t, &made)) return false;
    /* This applies to all plans of a kernel. */
    int granted = (int)(cuda_facts(tools->device)->shared_bytes - sizeof(struct depthwise_ring));
    if (cudaFuncSetAttribute((const void *)made.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             granted)) {
        cudaGetLastError();
        return false;
    }
    plan->workspace = (size_t)made.grid.y * p->c * share_numbers(p) * sizeof(float);
    plan->gives_sums = p->sums;
    plan->state = memory_new(1, sizeof made);
    *(struct depthwise_plan *)plan->state = made;
    return true;
}

static void depthwise_release(struct conv_plan *plan)
{
    free(plan->state);
}

/* Sums of the blocks' shares for both gradients: the weights', and, if requested, sums of d_x. */
static enum status sum_both(const struct conv_problem *p, const struct call *call, const float *shares,
                            int count)
{
    int numbers = p->c * p->kernel[0] * p->kernel[1];
    TRY(conv_sum_shares(call, (float *)call->d_params[0].data, shares, count, numbers));
    if (!p->clips) return OK;
    float *sums = (float *)call_data(call, OPERAND_D_X_SUMS);
    return conv_sum_shares(call, sums, shares + (int64_t)count * numbers, count, p->c);
}

static enum status depthwise_run(const struct conv_plan *plan, const struct call *call,
                                 const struct conv_tools *tools)
{
    (void)tools;
    const struct conv_problem *p = &plan->problem;
    const struct depthwise_plan *made = (const struct depthwise_plan *)plan->state;
    bool data = p->phase == PHASE_BACKWARD_DATA, weights = p->phase == PHASE_BACKWARD_PARAMS;
    bool both = p->phase == PHASE_BACKWARD;
    struct conv_operands at = conv_operands(call);
    struct depthwise_operands o = {
        .to = both ? call->d_x[0].data : data ? at.x : at.y,
        .from = data ? at.y : at.x,
        .d_y = at.y,
        .weight = at.weight,
        .bias = p->bias ? at.bias : NULL,
        .turned = data,
        .shares = share_numbers(p) > 0 ? (float *)call->workspace : NULL,
    };
    made->kernel<<<made->grid, (unsigned)made->threads, made->shared, stream_of(call)>>>(made->layout, o);
    TRY(launched(call));
    if (!o.shares) return OK;
    if (both) return sum_both(p, call, o.shares, (int)made->grid.y);
    float *to = (float *)(weights ? at.weight : call_data(call, OPERAND_Y_MOMENTS));
    return conv_sum_shares(call, to, o.shares, (int)made->grid.y, p->c * share_numbers(p));
}

const struct conv_algorithm conv_by_depthwise = {
    .name = "depthwise",
    .candidates = depthwise_candidates,
    .make = depthwise_make,
    .release = depthwise_release,
    .run = depthwise_run,
};
