/* linear.cu: matrix products by the cuBLASLt algorithm that the autotuner chooses for their shapes, or by a
 * plain kernel if the library has none. */
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/linear/linear.cuh"
#include "kernels/support/phase_plans.cuh"
#include "kernels/support/rows.cuh"

extern "C" {
#include "base/memory.h"
}

/* A phase as a product. `late`: D lies in the workspace and the bias is still to be added. */
struct linear_problem {
    enum phase phase;
    bool late;
    struct matmul_problem product;
};

/* Where rows are not whole packs, the library may round to 16 bits before it adds the bias. */
static void make_late(struct linear_problem *p)
{
    struct matmul_problem *product = &p->product;
    p->late = product->bias && product->factor != F32 && (product->m % 8 != 0 || product->k % 8 != 0);
    if (!p->late) return;
    product->bias = false;
    product->result = F32;
}

static struct linear_problem linear_problem_of(const struct call *call, enum phase phase)
{
    struct linear_problem p = {.phase = phase, .product = linear_product(call, phase)};
    if (phase != PHASE_FORWARD) return p;
    p.product.bias = call->param_count > 1;
    p.product.adds = call_operand(call, OPERAND_Y_ADDEND);
    make_late(&p);
    return p;
}

static struct matmul_operands linear_operands(const struct call *call)
{
    const void *bias = call->param_count > 1 ? call->params[1].data : NULL;
    if (call->phase == PHASE_FORWARD)
        return {.a = call->params[0].data, .b = call->x[0].data, .bias = bias,
                .c = call_data(call, OPERAND_Y_ADDEND), .d = call->y.data, .alpha = 1};
    if (call->phase == PHASE_BACKWARD_DATA)
        return {.a = call->params[0].data, .b = call->d_y.data, .d = call->d_x[0].data, .alpha = 1};
    return {.a = call->x[0].data, .b = call->d_y.data, .d = call->d_params[0].data, .alpha = 1};
}

/* A kernel plan; without a matmul it is our own kernel's. */
struct linear_plan {
    struct linear_problem problem;
    char name[CANDIDATE_NAME];
    struct matmul *matmul;
    size_t workspace;            /* bytes that the library needs, with a late result behind them */
};

#define TILE 32

/* Our own kernel: a block computes TILE x TILE of D, a thread four of them, TILE terms at a time. */
template <class X, class Y>
__global__ void __launch_bounds__(TILE * 8)
linear_plain_kernel(Y *d, const X *a, const X *b, const X *bias, const X *c,
                    const __grid_constant__ struct matmul_problem p)
{
    __shared__ float tile_a[TILE][TILE + 1], tile_b[TILE][TILE + 1];     /* term by row or column of D */
    int64_t wide = div_up(p.m, (int64_t)TILE);
    int64_t row = blockIdx.x % wide * TILE, column = blockIdx.x / wide * TILE;
    int across = threadIdx.x, down = threadIdx.y;
    float sum[TILE / 8] = {};
    for (int64_t first = 0; first < p.k; first += TILE) {
        for (int i = down; i < TILE; i += 8) {
            int64_t ra = row + (p.turn_a ? i : across), ka = first + (p.turn_a ? across : i);
            int64_t cb = column + (p.turn_b ? across : i), kb = first + (p.turn_b ? i : across);
            float va = ra < p.m && ka < p.k ? to_float(a[p.turn_a ? ra * p.k + ka : ka * p.m + ra]) : 0;
            float vb = cb < p.n && kb < p.k ? to_float(b[p.turn_b ? kb * p.n + cb : cb * p.k + kb]) : 0;
            (p.turn_a ? tile_a[across][i] : tile_a[i][across]) = va;
            (p.turn_b ? tile_b[i][across] : tile_b[across][i]) = vb;
        }
        __syncthreads();
        for (int term = 0; term < TILE; term++)
#pragma unroll
            for (int i = 0; i < TILE / 8; i++) sum[i] += tile_a[term][across] * tile_b[term][down + 8 * i];
        __syncthreads();
    }
    if (row + across >= p.m) return;
    float start = bias ? to_float(bias[row + across]) : 0;
#pragma unroll
    for (int i = 0; i < TILE / 8; i++)
        if (column + down + 8 * i < p.n) {
            int64_t at = (column + down + 8 * i) * p.m + row + across;
            d[at] = from_float<Y>(start + sum[i] + (c ? to_float(c[at]) : 0));
        }
}

static enum status multiply_plainly(const struct call *call, const struct linear_problem *problem,
                                    const struct matmul_operands *at)
{
    const struct matmul_problem *p = &problem->product;
    unsigned blocks = (unsigned)(div_up(p->m, (int64_t)TILE) * div_up(p->n, (int64_t)TILE));
    return with_type(p->factor, [&](auto type) {
        using X = decltype(type);
        const X *a = (const X *)at->a, *b = (const X *)at->b, *bias = (const X *)at->bias;
        const X *c = (const X *)at->c;
        dim3 threads(TILE, 8);
        if (p->result == F32 && !problem->late)
            linear_plain_kernel<<<blocks, threads, 0, stream_of(call)>>>((float *)at->d, a, b, bias, c, *p);
        else
            linear_plain_kernel<<<blocks, threads, 0, stream_of(call)>>>((X *)at->d, a, b, bias, c, *p);
        return launched(call);
    });
}

#define BIAS_THREADS 256
#define GRID_MAX 65535      /* of blocks in the grid's second dimension */

/* y = sums + bias, row by row. */
template <class T>
__global__ void __launch_bounds__(BIAS_THREADS)
linear_bias_kernel(T *y, const float *sums, const T *bias, int64_t rows, int64_t columns)
{
    int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float start = to_float(bias[column]);
    int64_t step = (int64_t)gridDim.y * blockDim.y;
    for (int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += step)
        y[row * columns + column] = from_float<T>(start + sums[row * columns + column]);
}

static enum status finish_late(const struct call *call, const struct matmul_problem *p, const float *sums)
{
    int across = power_up(p->m, BIAS_THREADS), down = BIAS_THREADS / across;
    int64_t deep = div_up(p->n, (int64_t)down);
    dim3 blocks((unsigned)div_up(p->m, (int64_t)across), (unsigned)(deep < GRID_MAX ? deep : GRID_MAX));
    return with_type(p->factor, [&](auto type) {
        using T = decltype(type);
        linear_bias_kernel<<<blocks, dim3(across, down), 0, stream_of(call)>>>(
            (T *)call->y.data, sums, (const T *)call->params[1].data, p->n, p->m);
        return launched(call);
    });
}

/* A late result follows the library's scratch memory. */
static size_t late_offset(const struct matmul *matmul)
{
    return workspace_align(matmul_scratch(matmul));
}

static size_t late_bytes(const struct linear_problem *p)
{
    return p->late ? (size_t)(p->product.m * p->product.n) * sizeof(float) : 0;
}

static enum status linear_plan_run(const struct linear_plan *plan, const struct call *call, bool trial)
{
    const struct linear_problem *p = &plan->problem;
    struct matmul_operands at = linear_operands(call);
    if (p->product.m * p->product.n == 0) return OK;
    if (!plan->matmul) return multiply_plainly(call, p, &at);
    at.scratch = call->workspace;
    at.trial = trial;
    if (trial && p->product.adds) at.c = at.d;
    if (p->late) at.d = (char *)call->workspace + late_offset(plan->matmul);
    TRY(matmul_run(plan->matmul, call, &at));
    return p->late ? finish_late(call, &p->product, (const float *)at.d) : OK;
}

/* ---- What the autotuner asks ---- */

struct linear_context {
    struct linear_problem problem;
    struct matmul_library library;
};

static int linear_candidates(const void *self, int most, char names[][CANDIDATE_NAME])
{
    const struct linear_context *context = (const struct linear_context *)self;
    return matmul_candidates(&context->library, &context->problem.product, most, names);
}

static void linear_plan_free(void *made)
{
    if (made) matmul_close(((struct linear_plan *)made)->matmul);
    free(made);
}

static void *linear_plan_make(const void *self, const char *name, size_t *workspace)
{
    const struct linear_context *context = (const struct linear_context *)self;
    const struct linear_problem *p = &context->problem;
    struct matmul *matmul = matmul_make(&context->library, &p->product, name);
    if (!matmul && strcmp(name, "plain") != 0) return NULL;
    struct linear_plan *plan = (struct linear_plan *)memory_new(1, sizeof *plan);
    *plan = (struct linear_plan){.problem = *p, .matmul = matmul};
    snprintf(plan->name, sizeof plan->name, "%s", name);
    if (matmul) plan->workspace = p->late ? late_offset(matmul) + late_bytes(p) : matmul_scratch(matmul);
    *workspace = plan->workspace;
    return plan;
}

static enum status linear_plan_try(const void *self, void *plan, const struct call *call)
{
    (void)self;
    return linear_plan_run((const struct linear_plan *)plan, call, true);
}

static const struct autotune_functions functions = {
    .candidates = linear_candidates,
    .fallback = "plain",
    .plan_make = linear_plan_make,
    .plan_free = linear_plan_free,
    .plan_try = linear_plan_try,
};

/* ---- Choosing ---- */

static char *linear_key_new(const struct linear_problem *problem, const struct device *device)
{
    const struct matmul_problem *p = &problem->product;
    const char *phase = problem->phase == PHASE_FORWARD ? "forward" : p->turn_b ? "weights" : "data";
    const char *factor = p->tf32 ? "tf32" : dtype_table[p->factor].name;
    return text_format("%s, cuBLASLt %zu, linear %s %s to %s%s%s%s %lld x %lld x %lld",
                       cuda_facts(device)->name, cublaslt()->cublasLtGetVersion(), phase, factor,
                       p->bias ? "biased " : problem->late ? "late " : "", dtype_table[p->result].name,
                       p->adds ? " added" : "", p->deterministic ? " deterministic" : "", (long long)p->m,
                       (long long)p->n, (long long)p->k);
}

static enum status linear_plan_choose(const struct linear_context *context, const struct call *call,
                                      const char *only, void **plan)
{
    const struct linear_problem *p = &context->problem;
    const struct tensor *x = call->x[0].shape.rank > 0 ? &call->x[0] : &call->d_x[0];
    int64_t units = ((const struct linear_settings *)call->settings)->units;
    char *key = linear_key_new(p, call->device);
    struct autotune_problem problem = {
        .functions = &functions, .self = context, .device = call->device, .key = key, .only = only,
        .deterministic = p->product.deterministic, .workspace_limit = MATMUL_SCRATCH + 256 + late_bytes(p),
        .phase = p->phase, .dtype = p->product.factor,
        .x = shape_nhwc(linear_rows(x->shape), 1, 1, x->shape.c),
        .y = shape_nhwc(linear_rows(x->shape), 1, 1, units),
        .weight = {.rank = 2, .dim = {units, x->shape.c, 1, 1}},
        .bias = p->product.bias || p->late,
    };
    enum status status = autotune(&problem, plan);
    if (status == OK && !*plan && !only) status = fail(FAILED, "%s: no algorithm supports it", key);
    free(key);
    return status;
}

static enum status linear_plan_open(const struct linear_problem *p, const struct call *call,
                                    struct linear_plan **plan)
{
    struct linear_context context = {*p, {.prefix = "cublaslt", .scratch = MATMUL_SCRATCH}};
    void *made = NULL;
    TRY(cuda_cublaslt(call->device, &context.library.handle));
    TRY(linear_plan_choose(&context, call, call->variant, &made));
    if (!made) TRY(linear_plan_choose(&context, call, NULL, &made));
    *plan = (struct linear_plan *)made;
    return OK;
}

/* Without a device: an fp32 copy of the result, which is the most scratch memory that almost all algorithms
 * need. */
static enum status linear_phase_choose(const struct call *call, enum phase phase, struct phase_plan *made)
{
    struct linear_problem p = linear_problem_of(call, phase);
    size_t result = (size_t)(p.product.m * p.product.n) * sizeof(float);
    struct linear_plan *plan = NULL;
    if (call->device) TRY(linear_plan_open(&p, call, &plan));
    made->plan = plan;
    made->workspace = plan ? plan->workspace : result < MATMUL_SCRATCH ? result : MATMUL_SCRATCH;
    return OK;
}

static enum status linear_prepare(const struct call *call, void **kernel_plan)
{
    static const struct phase_plan_functions plans = {linear_phase_choose, linear_plan_free};
    return phase_plans_prepare(&plans, call, kernel_plan);
}

/* For the bias's gradient by pixel. */
static size_t linear_sums_bytes(const struct call *call)
{
    struct shape d_y = call->d_y.shape;
    bool wanted = call->phase == PHASE_BACKWARD_PARAMS && call->param_count > 1 && d_y.h * d_y.w > 1;
    return wanted ? conv_sums_workspace(linear_rows(d_y), (int)d_y.c, false) : 0;
}

/* The product's, then that of the sums. */
static size_t linear_workspace(const struct call *call)
{
    const struct phase_plan *made;
    if (phase_plan_of(call, &made) != OK) return 0;
    size_t sums = linear_sums_bytes(call);
    return made->workspace > sums ? made->workspace : sums;
}

static const char *linear_plan_name(const struct call *call)
{
    const struct phase_plan *made;
    return phase_plan_of(call, &made) == OK ? ((const struct linear_plan *)made->plan)->name : "";
}

static enum status linear_run(const struct call *call)
{
    const struct phase_plan *made;
    TRY(phase_plan_of(call, &made));
    return linear_plan_run((const struct linear_plan *)made->plan, call, false);
}

static enum status linear_backward_data(const struct call *call)
{
    return call->d_x[0].data ? linear_run(call) : OK;
}

/* The bias's gradient is d_y summed over the batch, or over all pixels. */
static enum status linear_backward_params(const struct call *call)
{
    struct shape d_y = call->d_y.shape;
    TRY(linear_run(call));
    if (call->param_count < 2 || !call->d_params[1].data) return OK;
    if (d_y.h * d_y.w > 1) return conv_sums(call, &call->d_y, (float *)call->d_params[1].data, false);
    return with_chunk(call->d_y.dtype, d_y.c, [&](auto type, auto wide) {
        using T = decltype(type);
        return sum_rows<float, T, decltype(wide)::number>(call, (float *)call->d_params[1].data,
                                                          (const T *)call->d_y.data, {1, d_y.n, d_y.c, 1});
    });
}

static const char *const variants[] = {"cublaslt", "plain", NULL};

const struct op_code linear_cuda = {
    .prepare_together = true,
    .supports = linear_cuda_supports,
    .variants = variants,
    .plan_name = linear_plan_name,
    .prepare = linear_prepare,
    .release = phase_plans_release,
    .workspace = linear_workspace,
    .forward = linear_run,
    .backward_data = linear_backward_data,
    .backward_params = linear_backward_params,
};
