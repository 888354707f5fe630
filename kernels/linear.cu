/* linear.cu: matrix products by the cuBLASLt algorithm that the autotuner chooses for their shapes, or by a
 * plain kernel if the library has none. */
#include "kernels/conv_cuda.cuh"
#include "kernels/cublaslt.cuh"
#include "kernels/rows.cuh"

extern "C" {
#include "base/memory.h"
#include "kernels/linear.h"
}

#define WORKSPACE_MAX ((size_t)32 << 20)    /* bytes: what NVIDIA advises to grant on large GPUs */
#define ALGORITHMS 8                        /* worth timing */

/* D = op(A) op(B), the library's way: columns first, D being m x n, op(A) m x k. Our rows are its columns.
 * `late`: D lies in the workspace and the bias is still to be added. */
struct linear_problem {
    enum phase phase;
    enum dtype factor, result;
    bool bias, late, tf32, deterministic;
    int64_t m, n, k, lda, ldb, ldd;
    bool turn_a, turn_b;
};

/* Where a call's factors and results are. */
struct linear_operands {
    const void *a, *b, *bias;
    void *d;
};

/* Where rows are not whole packs, the library may round to 16 bits before it adds the bias. */
static void make_late(struct linear_problem *p)
{
    p->late = p->bias && p->factor != F32 && (p->m % 8 != 0 || p->k % 8 != 0);
    if (!p->late) return;
    p->bias = false;
    p->result = F32;
}

static struct linear_problem linear_problem_of(const struct call *call, enum phase phase)
{
    const struct tensor *x = call->x[0].shape.rank > 0 ? &call->x[0] : &call->d_x[0];
    int64_t batch = linear_rows(x->shape), inputs = x->shape.c;
    int64_t units = ((const struct linear_settings *)call->settings)->units;
    struct linear_problem p = {.phase = phase, .factor = x->dtype, .result = x->dtype,
                        .tf32 = call->tf32 && x->dtype == F32, .deterministic = call->deterministic};
    if (phase == PHASE_FORWARD) {
        p.bias = call->param_count > 1;
        p.m = units, p.n = batch, p.k = inputs;
        p.lda = inputs, p.ldb = inputs, p.ldd = units;
        p.turn_a = true;
        make_late(&p);
    } else if (phase == PHASE_BACKWARD_DATA) {
        p.m = inputs, p.n = batch, p.k = units;
        p.lda = inputs, p.ldb = units, p.ldd = inputs;
    } else {
        p.result = F32;
        p.m = inputs, p.n = units, p.k = batch;
        p.lda = inputs, p.ldb = units, p.ldd = inputs;
        p.turn_b = true;
    }
    return p;
}

static struct linear_operands linear_operands(const struct call *call)
{
    if (call->phase == PHASE_FORWARD)
        return {call->params[0].data, call->x[0].data, call->param_count > 1 ? call->params[1].data : NULL,
                call->y.data};
    if (call->phase == PHASE_BACKWARD_DATA)
        return {call->params[0].data, call->d_y.data, NULL, call->d_x[0].data};
    return {call->x[0].data, call->d_y.data, NULL, call->d_params[0].data};
}

/* A kernel plan; without a handle it is our own kernel's. */
struct linear_plan {
    struct linear_problem problem;
    char name[CANDIDATE_NAME];
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t scratch, workspace;   /* bytes that the library needs; with a late result behind them */
    bool trusted;                /* it is known to run, so that a failure is to be reported */
};

/* A prepared layer, of which call->kernel_plan is made. */
struct linear_plans {
    struct {
        bool chosen;
        struct linear_plan *plan;        /* NULL when there is no device */
        size_t workspace;
    } of[PHASE_COUNT];
};

static bool attribute_set(struct linear_plan *plan, cublasLtMatmulDescAttributes_t name, const void *value,
                          size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(plan->operation, name, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool describe_operation(struct linear_plan *plan)
{
    const struct linear_problem *p = &plan->problem;
    cublasOperation_t turn_a = p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t turn_b = p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cudaDataType_t bias = cublaslt_type(p->result);
    cublasComputeType_t compute = p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    return !cublasLtMatmulDescCreate(&plan->operation, compute, CUDA_R_32F) &&
           attribute_set(plan, CUBLASLT_MATMUL_DESC_TRANSA, &turn_a, sizeof turn_a) &&
           attribute_set(plan, CUBLASLT_MATMUL_DESC_TRANSB, &turn_b, sizeof turn_b) &&
           attribute_set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           attribute_set(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias);
}

static bool describe_matrix(cublasLtMatrixLayout_t *layout, enum dtype dtype, bool turned, int64_t rows,
                            int64_t columns, int64_t leading)
{
    return !cublasLtMatrixLayoutCreate(layout, cublaslt_type(dtype), turned ? columns : rows,
                                       turned ? rows : columns, leading);
}

/* All but the algorithm. */
static bool describe(struct linear_plan *plan)
{
    const struct linear_problem *p = &plan->problem;
    return describe_operation(plan) &&
           describe_matrix(&plan->a, p->factor, p->turn_a, p->m, p->k, p->lda) &&
           describe_matrix(&plan->b, p->factor, p->turn_b, p->k, p->n, p->ldb) &&
           describe_matrix(&plan->d, p->result, false, p->m, p->n, p->ldd);
}

static void linear_plan_close(struct linear_plan *plan)
{
    if (plan->operation) cublasLtMatmulDescDestroy(plan->operation);
    if (plan->a) cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b) cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->d) cublasLtMatrixLayoutDestroy(plan->d);
}

/* The library's algorithms, the one it thinks fastest first. Partial sums are added in fp32, in one order. */
static int linear_algorithms(const struct linear_plan *plan,
                             cublasLtMatmulHeuristicResult_t found[ALGORITHMS])
{
    int count = 0;
    cublasLtMatmulPreference_t wish;
    uint64_t workspace = WORKSPACE_MAX;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (cublasLtMatmulPreferenceCreate(&wish)) return 0;
    if (cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof workspace) ||
        cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                             sizeof reductions) ||
        cublasLtMatmulAlgoGetHeuristic(plan->handle, plan->operation, plan->a, plan->b, plan->d, plan->d,
                                       wish, ALGORITHMS, found, &count))
        count = 0;
    cublasLtMatmulPreferenceDestroy(wish);
    return count;
}

static enum status linear_multiply(const struct linear_plan *plan, const struct call *call,
                                   const struct linear_operands *at)
{
    const float one = 1, zero = 0;
    if (plan->problem.bias)
        cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at->bias,
                                       sizeof at->bias);
    cublasStatus_t error =
        cublasLtMatmul(plan->handle, plan->operation, &one, at->a, plan->a, at->b, plan->b, &zero, at->d,
                       plan->d, at->d, plan->d, &plan->algorithm, call->workspace, plan->scratch,
                       stream_of(call));
    if (error == CUBLAS_STATUS_SUCCESS) return OK;
    if (!plan->trusted) return NO_DEVICE;
    return fail(NO_DEVICE, "cuda:%d (%s): a product failed: %s (cuBLASLt)", call->device->index,
                cuda_facts(call->device)->name, cublasLtGetStatusString(error));
}

#define TILE 32

/* Our own: a block makes TILE x TILE of D, a thread four of them, one step of TILE terms at a time. */
template <class X, class Y>
__global__ void __launch_bounds__(TILE * 8)
linear_plain_kernel(Y *d, const X *a, const X *b, const X *bias,
                    const __grid_constant__ struct linear_problem p)
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
            float va = ra < p.m && ka < p.k ? to_float(a[p.turn_a ? ra * p.lda + ka : ka * p.lda + ra]) : 0;
            float vb = cb < p.n && kb < p.k ? to_float(b[p.turn_b ? kb * p.ldb + cb : cb * p.ldb + kb]) : 0;
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
        if (column + down + 8 * i < p.n)
            d[(column + down + 8 * i) * p.ldd + row + across] = from_float<Y>(start + sum[i]);
}

static enum status multiply_plainly(const struct call *call, const struct linear_problem *p,
                                    const struct linear_operands *at)
{
    unsigned blocks = (unsigned)(div_up(p->m, (int64_t)TILE) * div_up(p->n, (int64_t)TILE));
    return with_type(p->factor, [&](auto type) {
        using X = decltype(type);
        const X *a = (const X *)at->a, *b = (const X *)at->b, *bias = (const X *)at->bias;
        dim3 threads(TILE, 8);
        if (p->result == F32 && !p->late)
            linear_plain_kernel<<<blocks, threads, 0, stream_of(call)>>>((float *)at->d, a, b, bias, *p);
        else
            linear_plain_kernel<<<blocks, threads, 0, stream_of(call)>>>((X *)at->d, a, b, bias, *p);
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

static enum status finish_late(const struct call *call, const struct linear_problem *p, const float *sums)
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

/* A late result lies behind the library's scratch memory. */
static size_t late_offset(const struct linear_plan *plan)
{
    return div_up(plan->scratch, (size_t)256) * 256;
}

static size_t late_bytes(const struct linear_problem *p)
{
    return p->late ? (size_t)(p->m * p->n) * sizeof(float) : 0;
}

static enum status linear_plan_run(const struct linear_plan *plan, const struct call *call)
{
    const struct linear_problem *p = &plan->problem;
    struct linear_operands at = linear_operands(call);
    if (p->m * p->n == 0) return OK;
    if (!plan->handle) return multiply_plainly(call, p, &at);
    if (p->late) at.d = (char *)call->workspace + late_offset(plan);
    TRY(linear_multiply(plan, call, &at));
    return p->late ? finish_late(call, p, (const float *)at.d) : OK;
}

/* ---- What the autotuner asks ---- */

struct linear_context {
    struct linear_problem problem;
    cublasLtHandle_t handle;
};

static int linear_candidates(const void *self, int most, char names[][CANDIDATE_NAME])
{
    const struct linear_context *context = (const struct linear_context *)self;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    struct linear_plan plan = {.problem = context->problem, .handle = context->handle};
    int count = describe(&plan) ? linear_algorithms(&plan, found) : 0;
    if (count > most) count = most;
    for (int i = 0; i < count; i++) cublaslt_print("cublaslt", &found[i].algo, names[i]);
    linear_plan_close(&plan);
    return count;
}

/* False where the library does not take the algorithm. */
static bool linear_plan_check(struct linear_plan *plan)
{
    cublasLtMatmulHeuristicResult_t result;
    if (!describe(plan) || !cublaslt_parse("cublaslt", plan->name, &plan->algorithm) ||
        cublasLtMatmulAlgoCheck(plan->handle, plan->operation, plan->a, plan->b, plan->d, plan->d,
                                &plan->algorithm, &result))
        return false;
    plan->scratch = result.workspaceSize;
    return true;
}

static void linear_plan_free(void *made)
{
    if (made) linear_plan_close((struct linear_plan *)made);
    free(made);
}

static void *linear_plan_make(const void *self, const char *name, size_t *workspace)
{
    const struct linear_context *context = (const struct linear_context *)self;
    bool plain = strcmp(name, "plain") == 0;
    struct linear_plan *plan = (struct linear_plan *)memory_new(1, sizeof *plan);
    *plan = (struct linear_plan){.problem = context->problem};
    snprintf(plan->name, sizeof plan->name, "%s", name);
    plan->handle = plain ? NULL : context->handle;
    if (!plain && !linear_plan_check(plan)) {
        linear_plan_free(plan);
        return NULL;
    }
    if (!plain) plan->workspace = plan->problem.late ? late_offset(plan) + late_bytes(&plan->problem)
                                                     : plan->scratch;
    *workspace = plan->workspace;
    return plan;
}

static enum status linear_plan_try(const void *self, void *plan, const struct call *call)
{
    (void)self;
    return linear_plan_run((const struct linear_plan *)plan, call);
}

static const struct autotune_functions functions = {
    .candidates = linear_candidates,
    .fallback = "plain",
    .plan_make = linear_plan_make,
    .plan_free = linear_plan_free,
    .plan_try = linear_plan_try,
};

/* ---- Choosing ---- */

static char *linear_key_new(const struct linear_problem *p, const struct device *device)
{
    const char *phase = p->phase == PHASE_FORWARD ? "forward" : p->turn_b ? "weights" : "data";
    const char *factor = p->tf32 ? "tf32" : dtype_table[p->factor].name;
    return text_format("%s, cuBLASLt %zu, linear %s %s to %s%s%s %lld x %lld x %lld",
                       cuda_facts(device)->name, cublasLtGetVersion(), phase, factor,
                       p->bias ? "biased " : p->late ? "late " : "", dtype_table[p->result].name,
                       p->deterministic ? " deterministic" : "", (long long)p->m, (long long)p->n,
                       (long long)p->k);
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
        .deterministic = p->deterministic, .workspace_limit = WORKSPACE_MAX + 256 + late_bytes(p),
        .phase = p->phase, .dtype = p->factor, .x = shape_nhwc(linear_rows(x->shape), 1, 1, x->shape.c),
        .y = shape_nhwc(linear_rows(x->shape), 1, 1, units),
        .weight = {.rank = 2, .dim = {units, x->shape.c, 1, 1}},
        .bias = p->bias || p->late,
    };
    enum status status = autotune(&problem, plan);
    if (status == OK && !*plan && !only) status = fail(FAILED, "%s: no algorithm supports it", key);
    free(key);
    return status;
}

static enum status linear_plan_open(const struct linear_problem *p, const struct call *call,
                                    struct linear_plan **plan)
{
    struct linear_context context = {.problem = *p};
    void *made = NULL;
    TRY(cuda_cublaslt(call->device, &context.handle));
    TRY(linear_plan_choose(&context, call, call->variant, &made));
    if (!made) TRY(linear_plan_choose(&context, call, NULL, &made));
    *plan = (struct linear_plan *)made;
    (*plan)->trusted = true;
    return OK;
}

/* Without a device: as much scratch memory as most algorithms ask for at most, a copy of the result in
 * fp32. */
static enum status linear_phase_prepare(struct linear_plans *plans, const struct call *call, enum phase phase)
{
    auto *made = &plans->of[phase];
    struct linear_problem p = linear_problem_of(call, phase);
    size_t result = (size_t)(p.m * p.n) * sizeof(float);
    made->workspace = result < WORKSPACE_MAX ? result : WORKSPACE_MAX;
    if (call->device) {
        TRY(linear_plan_open(&p, call, &made->plan));
        made->workspace = made->plan->workspace;
    }
    made->chosen = true;
    return OK;
}

static void linear_release(void *made)
{
    struct linear_plans *plans = (struct linear_plans *)made;
    if (!plans) return;
    for (int i = 0; i < PHASE_COUNT; i++) linear_plan_free(plans->of[i].plan);
    free(plans);
}

static enum status linear_prepare(const struct call *call, void **made)
{
    struct linear_plans *plans = (struct linear_plans *)memory_new(1, sizeof *plans);
    bool data = call->d_x[0].shape.rank > 0, params = call->d_params[0].shape.rank > 0;
    enum status status = linear_phase_prepare(plans, call, PHASE_FORWARD);
    if (status == OK && data) status = linear_phase_prepare(plans, call, PHASE_BACKWARD_DATA);
    if (status == OK && params) status = linear_phase_prepare(plans, call, PHASE_BACKWARD_PARAMS);
    if (status == OK) *made = plans;
    else linear_release(plans);
    return status;
}

/* Phases that prepare was not told of are chosen when they are first asked for. */
static enum status linear_phase_ready(const struct call *call)
{
    struct linear_plans *plans = (struct linear_plans *)call->kernel_plan;
    return plans->of[call->phase].chosen ? OK : linear_phase_prepare(plans, call, call->phase);
}

static const struct linear_plan *linear_plan_of(const struct call *call)
{
    return ((const struct linear_plans *)call->kernel_plan)->of[call->phase].plan;
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
    if (linear_phase_ready(call) != OK) return 0;
    size_t product = ((const struct linear_plans *)call->kernel_plan)->of[call->phase].workspace;
    size_t sums = linear_sums_bytes(call);
    return product > sums ? product : sums;
}

static const char *linear_plan_name(const struct call *call)
{
    return linear_phase_ready(call) == OK ? linear_plan_of(call)->name : "";
}

static enum status linear_run(const struct call *call)
{
    TRY(linear_phase_ready(call));
    return linear_plan_run(linear_plan_of(call), call);
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
    if (call->param_count < 2) return OK;
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
    .variants = variants,
    .plan_name = linear_plan_name,
    .prepare = linear_prepare,
    .release = linear_release,
    .workspace = linear_workspace,
    .forward = linear_run,
    .backward_data = linear_backward_data,
    .backward_params = linear_backward_params,
};
