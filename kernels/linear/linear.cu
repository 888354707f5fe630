/* linear.cu: matrix products by the cuBLASLt algorithm that the autotuner chooses for their shapes, or by a
 * plain kernel if the library has none. */
#include "kernels/linear/linear.cuh"
#include "kernels/support/columns.cuh"
#include "kernels/support/planned.cuh"

extern "C" {
#include "base/memory.h"
}

/* Where rows are not whole packs, the library may round to 16 bits before it adds the bias. There the product
 * is left in the workspace in fp32, and the bias is added late. */
static struct matmul_problem linear_problem(const struct call *call)
{
    struct matmul_problem p = linear_product(call);
    if (call->phase != PHASE_FORWARD) return p;
    bool late = call->param_count > 1 && p.factor != F32 && (p.m % 8 != 0 || p.k % 8 != 0);
    p.bias = call->param_count > 1 && !late;
    p.adds = call_operand(call, OPERAND_Y_ADDEND);
    if (late) p.result = F32;
    return p;
}

static bool is_late(const struct call *call, const struct matmul_problem &p)
{
    return call->phase == PHASE_FORWARD && call->param_count > 1 && !p.bias;
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

static enum status multiply_plainly(const struct call *call, const struct matmul_problem *p,
                                    const struct matmul_operands *at)
{
    unsigned blocks = (unsigned)(div_up(p->m, (int64_t)TILE) * div_up(p->n, (int64_t)TILE));
    return with_type(p->factor, [&](auto type) {
        using X = decltype(type);
        const X *a = (const X *)at->a, *b = (const X *)at->b, *bias = (const X *)at->bias;
        const X *c = (const X *)at->c;
        dim3 threads(TILE, 8);
        if (call->phase == PHASE_BACKWARD_PARAMS)
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

static size_t late_bytes(const struct call *call, const struct matmul_problem &p)
{
    return is_late(call, p) ? (size_t)(p.m * p.n) * sizeof(float) : 0;
}

/* ---- The algorithms ---- */

static enum status library_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct matmul_problem p = linear_problem(call);
    const struct matmul *matmul = (const struct matmul *)plan->state;
    struct matmul_operands at = linear_operands(call);
    if (p.m * p.n == 0) return OK;
    at.scratch = call->workspace;
    at.trial = !plan->trusted;
    if (is_late(call, p)) at.d = (char *)call->workspace + late_offset(matmul);
    TRY(matmul_run(matmul, call, &at));
    return is_late(call, p) ? finish_late(call, &p, (const float *)at.d) : OK;
}

static bool library_of(const struct call *call, struct matmul_library *library)
{
    *library = {.prefix = "cublaslt", .scratch = MATMUL_SCRATCH};
    return cuda_cublaslt(call->device, &library->handle) == OK;
}

static int library_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    const struct matmul_problem p = linear_problem(call);
    struct matmul_library library;
    return library_of(call, &library) ? matmul_candidates(&library, &p, most, names) : 0;
}

static bool library_make(const struct call *call, struct kernel_plan *plan)
{
    const struct matmul_problem p = linear_problem(call);
    struct matmul_library library;
    struct matmul *matmul = NULL;
    if (library_of(call, &library)) matmul = matmul_make(&library, &p, plan->name);
    if (!matmul) return false;
    plan->state = matmul;
    plan->epilogues = AS_BIT(EPILOGUE_ADD);
    size_t late = late_bytes(call, p);
    plan->workspace = late ? late_offset(matmul) + late : matmul_scratch(matmul);
    return true;
}

static void library_release(struct kernel_plan *plan)
{
    matmul_close((struct matmul *)plan->state);
}

static enum status plain_run(const struct call *call, const struct kernel_plan *plan)
{
    (void)plan;
    const struct matmul_problem p = linear_problem(call);
    struct matmul_operands at = linear_operands(call);
    return p.m * p.n == 0 ? OK : multiply_plainly(call, &p, &at);
}

static bool plain_make(const struct call *call, struct kernel_plan *plan)
{
    (void)call;
    plan->epilogues = AS_BIT(EPILOGUE_ADD);
    return true;
}

/* For want of others, or asked for. */
static int plain_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    (void)call, (void)most, (void)names;
    return 0;
}

static const struct algorithm by_library = {
    .name = "cublaslt", .candidates = library_candidates, .make = library_make, .run = library_run,
    .release = library_release,
};
static const struct algorithm plainly = {.name = "plain", .candidates = plain_candidates, .make = plain_make,
                                         .run = plain_run};
static const struct algorithm *const algorithms[] = {&by_library, &plainly, NULL};

/* Without a device: an fp32 copy of the result, which is the most scratch memory that almost all algorithms
 * need. */
static enum status linear_choose(const struct op_code *code, const struct call *call,
                                 struct kernel_plan **made)
{
    const struct matmul_problem p = linear_problem(call);
    size_t result = (size_t)(p.m * p.n) * sizeof(float);
    size_t granted = MATMUL_SCRATCH + 256 + late_bytes(call, p);
    if (call->device) return autotune(code->algorithms, call, granted, made);
    *made = kernel_plan_bound(result < MATMUL_SCRATCH ? result : MATMUL_SCRATCH);
    return OK;
}

/* The bias's gradient is a sum over all pixels. */
static size_t linear_sums_bytes(const struct call *call)
{
    bool wanted = call->phase == PHASE_BACKWARD_PARAMS && call->param_count > 1;
    return wanted ? columns_workspace(&call->d_y, false) : 0;
}

/* The product's, then that of the sums. */
static size_t linear_workspace(const struct call *call)
{
    size_t sums = linear_sums_bytes(call), plan = call->kernel_plan->workspace;
    return plan > sums ? plan : sums;
}

static enum status linear_backward_params(const struct call *call)
{
    TRY(planned_call_run(call));
    if (call->param_count < 2 || !call->d_params[1].data) return OK;
    return columns_sum(call, &call->d_y, (float *)call->d_params[1].data, false);
}

static const char *const variants[] = {"cublaslt", "plain", NULL};

const struct op_code linear_cuda = {
    .plans_together = true,
    .supports = linear_cuda_supports,
    .algorithms = algorithms,
    .choose = linear_choose,
    .variants = variants,
    .workspace = linear_workspace,
    .forward = planned_call_run,
    .backward_data = planned_call_run,
    .backward_params = linear_backward_params,
};
