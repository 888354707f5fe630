/* linear.cu: products by cuBLASLt, in the way that is fastest on the real shapes, which is remembered; and by
 * a plain kernel where the library has none. */
#include "kernels/rows.cuh"

extern "C" {
#include "base/memory.h"
#include "device/cuda_tuning.h"
#include "kernels/linear.h"
}

#define WORKSPACE_MOST ((size_t)32 << 20)   /* bytes: what NVIDIA advises to grant on large GPUs */
#define OFFERS 8                            /* ways worth timing */

/* D = op(A) op(B), the library's way: columns first, D being m x n, op(A) m x k. Our rows are its columns.
 * `late`: D lies in the workspace and the bias is still to be added. */
struct product {
    enum phase phase;
    enum dtype factor, result;
    bool bias, late, tf32, deterministic;
    int64_t m, n, k, lda, ldb, ldd;
    bool turn_a, turn_b;
};

/* Where a call's factors and results are. */
struct operands {
    const void *a, *b, *bias;
    void *d;
};

/* Where rows are not whole packs, the library may round to 16 bits before it adds the bias. */
static void make_late(struct product *p)
{
    p->late = p->bias && p->factor != F32 && (p->m % 8 != 0 || p->k % 8 != 0);
    if (!p->late) return;
    p->bias = false;
    p->result = F32;
}

static struct product product_of(const struct call *call, enum phase phase)
{
    const struct tensor *x = call->x[0].shape.rank > 0 ? &call->x[0] : &call->d_x[0];
    int64_t batch = x->shape.n, inputs = x->shape.c;
    int64_t units = ((const struct linear_settings *)call->settings)->units;
    struct product p = {.phase = phase, .factor = x->dtype, .result = x->dtype,
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

static struct operands operands_of(const struct call *call)
{
    if (call->phase == PHASE_FORWARD)
        return {call->params[0].data, call->x[0].data, call->param_count > 1 ? call->params[1].data : NULL,
                call->y.data};
    if (call->phase == PHASE_BACKWARD_DATA)
        return {call->params[0].data, call->d_y.data, NULL, call->d_x[0].data};
    return {call->x[0].data, call->d_y.data, NULL, call->d_params[0].data};
}

/* A way to run a product: the library's, if `found`, else ours. */
struct way {
    bool chosen, found;
    struct product product;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
};

/* A prepared layer, of which call->engine is made. */
struct linear_engine {
    struct way ways[PHASE_COUNT];
};

static enum status library_status(const struct device *device, cublasStatus_t error, const char *trying)
{
    if (error == CUBLAS_STATUS_SUCCESS) return OK;
    return fail(NO_DEVICE, "cuda:%d (%s): %s failed: %s (cuBLASLt)", device->index, cuda_facts(device)->name,
                trying, cublasLtGetStatusString(error));
}

static cudaDataType_t data_type(enum dtype dtype)
{
    return dtype == F16 ? CUDA_R_16F : dtype == BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static bool ask(struct way *way, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(way->what, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool describe_product(struct way *way)
{
    const struct product *p = &way->product;
    cublasOperation_t turn_a = p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t turn_b = p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cudaDataType_t bias = data_type(p->result);
    cublasComputeType_t compute = p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    return !cublasLtMatmulDescCreate(&way->what, compute, CUDA_R_32F) &&
           ask(way, CUBLASLT_MATMUL_DESC_TRANSA, &turn_a, sizeof turn_a) &&
           ask(way, CUBLASLT_MATMUL_DESC_TRANSB, &turn_b, sizeof turn_b) &&
           ask(way, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           ask(way, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias);
}

static bool describe_matrix(cublasLtMatrixLayout_t *layout, enum dtype dtype, bool turned, int64_t rows,
                            int64_t columns, int64_t leading)
{
    return !cublasLtMatrixLayoutCreate(layout, data_type(dtype), turned ? columns : rows,
                                       turned ? rows : columns, leading);
}

static bool describe(struct way *way)
{
    const struct product *p = &way->product;
    return describe_product(way) && describe_matrix(&way->a, p->factor, p->turn_a, p->m, p->k, p->lda) &&
           describe_matrix(&way->b, p->factor, p->turn_b, p->k, p->n, p->ldb) &&
           describe_matrix(&way->d, p->result, false, p->m, p->n, p->ldd);
}

static void way_close(struct way *way)
{
    if (way->what) cublasLtMatmulDescDestroy(way->what);
    if (way->a) cublasLtMatrixLayoutDestroy(way->a);
    if (way->b) cublasLtMatrixLayoutDestroy(way->b);
    if (way->d) cublasLtMatrixLayoutDestroy(way->d);
    way->what = NULL;
    way->a = way->b = way->d = NULL;
}

/* The library's ways, the one it thinks fastest first. Partial sums are added in fp32, in one order. */
static int offers(const struct way *way, cublasLtMatmulHeuristicResult_t found[OFFERS])
{
    int count = 0;
    cublasLtMatmulPreference_t wish;
    uint64_t workspace = WORKSPACE_MOST;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (cublasLtMatmulPreferenceCreate(&wish)) return 0;
    if (cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof workspace) ||
        cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                             sizeof reductions) ||
        cublasLtMatmulAlgoGetHeuristic(way->handle, way->what, way->a, way->b, way->d, way->d, wish, OFFERS,
                                       found, &count))
        count = 0;
    cublasLtMatmulPreferenceDestroy(wish);
    return count;
}

static cublasStatus_t multiply(struct way *way, const struct operands *at,
                               const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                               cudaStream_t stream)
{
    const float one = 1, zero = 0;
    if (way->product.bias && !ask(way, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at->bias, sizeof at->bias))
        return CUBLAS_STATUS_INTERNAL_ERROR;
    return cublasLtMatmul(way->handle, way->what, &one, at->a, way->a, at->b, way->b, &zero, at->d, way->d,
                          at->d, way->d, algorithm, workspace, bytes, stream);
}

/* Memory like a call's, for timing. */
struct trial {
    struct operands at;
    char *memory, *workspace;
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

static size_t place(size_t *bytes, int64_t count, enum dtype dtype)
{
    size_t at = *bytes;
    *bytes += ((size_t)count * dtype_bytes(dtype) + 255) / 256 * 256;
    return at;
}

/* False when there is no memory to time with. */
static bool trial_open(struct trial *t, const struct product *p)
{
    size_t bytes = 0, a = place(&bytes, p->m * p->k, p->factor), b = place(&bytes, p->k * p->n, p->factor);
    size_t bias = place(&bytes, p->m, p->result), d = place(&bytes, p->m * p->n, p->result);
    if (cudaMalloc((void **)&t->memory, bytes + WORKSPACE_MOST) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    t->at = {t->memory + a, t->memory + b, t->memory + bias, t->memory + d};
    t->workspace = t->memory + bytes;
    return !cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking) && !cudaEventCreate(&t->begin) &&
           !cudaEventCreate(&t->end) && !cudaMemsetAsync(t->memory, 0x3c, bytes, t->stream);
}

static void trial_close(struct trial *t)
{
    if (t->begin) cudaEventDestroy(t->begin);
    if (t->end) cudaEventDestroy(t->end);
    if (t->stream) cudaStreamDestroy(t->stream);
    cudaFree(t->memory);
}

/* Milliseconds of each of `runs`; negative if one failed. */
static float trial_run(const struct trial *t, struct way *way, const cublasLtMatmulHeuristicResult_t *offer,
                       int runs)
{
    float elapsed = -1;
    cudaEventRecord(t->begin, t->stream);
    for (int i = 0; i < runs; i++)
        if (multiply(way, &t->at, &offer->algo, t->workspace, offer->workspaceSize, t->stream)) return -1;
    cudaEventRecord(t->end, t->stream);
    if (cudaEventSynchronize(t->end) || cudaEventElapsedTime(&elapsed, t->begin, t->end)) return -1;
    return elapsed / (float)runs;
}

#define TRIAL_ENOUGH 0.5f     /* milliseconds of runs in a row */
#define TRIAL_ROUNDS 3

static float trial_time(const struct trial *t, struct way *way, const cublasLtMatmulHeuristicResult_t *offer)
{
    if (trial_run(t, way, offer, 1) < 0) return -1;
    float least = trial_run(t, way, offer, 1);
    int runs = (int)(TRIAL_ENOUGH / (least + 0.001f)) + 1;
    for (int i = 0; i < TRIAL_ROUNDS && least >= 0; i++) {
        float time = trial_run(t, way, offer, runs);
        if (time < least) least = time;
    }
    return least;
}

/* The fastest; the first if none can be timed. */
static int fastest(struct way *way, const cublasLtMatmulHeuristicResult_t *found, int count, float *time)
{
    struct trial trial = {};
    int best = 0;
    *time = -1;
    if (trial_open(&trial, &way->product))
        for (int i = 0; i < count; i++) {
            float one = found[i].state == CUBLAS_STATUS_SUCCESS ? trial_time(&trial, way, &found[i]) : -1;
            if (one < 0 || (*time >= 0 && one >= *time)) continue;
            best = i;
            *time = one;
        }
    trial_close(&trial);
    return best;
}

#define WORDS ((int)(sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t)))

static char *key_new(const struct product *p, const struct device *device)
{
    const char *phase = p->phase == PHASE_FORWARD ? "forward" : p->turn_b ? "weights" : "data";
    const char *factor = p->tf32 ? "tf32" : dtype_table[p->factor].name;
    return text_format("%s, cuBLASLt %zu, linear %s %s to %s%s %lld x %lld x %lld", cuda_facts(device)->name,
                       cublasLtGetVersion(), phase, factor, p->bias ? "biased " : "",
                       dtype_table[p->result].name, (long long)p->m, (long long)p->n, (long long)p->k);
}

/* A remembered choice says how long it took, and the library's words for it: "131.2 us 1f 0 ...". */
static bool recall(const char *text, struct way *way)
{
    float time;
    int used = 0;
    if (!text || sscanf(text, "%f us%n", &time, &used) < 1 || used == 0) return false;
    for (int i = 0; i < WORDS; i++) {
        unsigned long long word;
        int more = 0;
        if (sscanf(text += used, " %llx%n", &word, &more) < 1) return false;
        way->algorithm.data[i] = word;
        used = more;
    }
    cublasLtMatmulHeuristicResult_t result;
    if (cublasLtMatmulAlgoCheck(way->handle, way->what, way->a, way->b, way->d, way->d, &way->algorithm,
                                &result) ||
        result.workspaceSize > WORKSPACE_MOST)
        return false;
    way->workspace = result.workspaceSize;
    return true;
}

static char *choice_new(const struct way *way, float time)
{
    char words[20 * WORDS] = "";
    int length = 0;
    for (int i = 0; i < WORDS; i++)
        length += snprintf(words + length, sizeof words - (size_t)length, " %llx",
                           (unsigned long long)way->algorithm.data[i]);
    return text_format("%.1f us%s", 1000 * time, words);
}

/* *time is negative when none was timed. */
static void search(struct way *way, float *time)
{
    cublasLtMatmulHeuristicResult_t found[OFFERS];
    int count = offers(way, found), best = 0;
    *time = -1;
    way->found = count > 0;
    if (!way->found) return;
    if (!way->product.deterministic && count > 1) best = fastest(way, found, count, time);
    way->algorithm = found[best].algo;
    way->workspace = found[best].workspaceSize;
}

/* By timing, which the file remembers for the next start, and the device for as long as the run goes on. */
static void choose_anew(struct way *way, struct device *device, const char *key)
{
    struct tuning *tuning = tuning_open();
    const char *remembered = tuning_find(tuning, key);
    way->found = recall(remembered, way);
    if (way->found) {
        cuda_choose(device, key, remembered);
    } else {
        float time;
        cuda_timing_begin(device);
        search(way, &time);
        cuda_timing_end(device);
        char *choice = choice_new(way, time);
        if (time >= 0) tuning_set(tuning, key, choice);
        if (way->found) cuda_choose(device, key, choice);
        free(choice);
    }
    tuning_close(tuning);
}

/* When bits must not depend on timing, the way that the library thinks best. */
static void choose(struct way *way, struct device *device)
{
    float time;
    if (way->product.deterministic) {
        search(way, &time);
        return;
    }
    char *key = key_new(&way->product, device), *known = cuda_choice(device, key);
    way->found = recall(known, way);
    if (!way->found) choose_anew(way, device, key);
    free(known);
    free(key);
}

static size_t late_bytes(const struct product *p)
{
    return p->late ? (size_t)(p->m * p->n) * sizeof(float) : 0;
}

/* Without a device: as much scratch memory as most ways ask for at most, a copy of the result in fp32. */
static enum status way_choose(struct way *way, const struct call *call, enum phase phase)
{
    way->product = product_of(call, phase);
    const struct product *p = &way->product;
    size_t result = (size_t)(p->m * p->n) * sizeof(float);
    way->workspace = result < WORKSPACE_MOST ? result : WORKSPACE_MOST;
    if (call->device) {
        TRY(cuda_cublaslt(call->device, &way->handle));
        way->workspace = 0;
        if (describe(way)) choose(way, call->device);
        TRY(cuda_status(call->device, cudaGetLastError(), "timing a product"));
    }
    way->chosen = true;
    return OK;
}

static void release(void *made)
{
    struct linear_engine *engine = (struct linear_engine *)made;
    if (!engine) return;
    for (int i = 0; i < PHASE_COUNT; i++) way_close(&engine->ways[i]);
    free(engine);
}

static enum status prepare(const struct call *call, void **made)
{
    struct linear_engine *engine = (struct linear_engine *)memory_new(1, sizeof *engine);
    bool data = call->d_x[0].shape.rank > 0, params = call->d_params[0].shape.rank > 0;
    struct way *ways = engine->ways;
    enum status status = way_choose(&ways[PHASE_FORWARD], call, PHASE_FORWARD);
    if (status == OK && data) status = way_choose(&ways[PHASE_BACKWARD_DATA], call, PHASE_BACKWARD_DATA);
    if (status == OK && params)
        status = way_choose(&ways[PHASE_BACKWARD_PARAMS], call, PHASE_BACKWARD_PARAMS);
    if (status == OK) *made = engine;
    else release(engine);
    return status;
}

/* Phases that prepare was not told of are chosen when they are first asked for. */
static enum status way_of(const struct call *call, struct way **way)
{
    *way = &((struct linear_engine *)call->engine)->ways[call->phase];
    return (*way)->chosen ? OK : way_choose(*way, call, call->phase);
}

/* What is late lies behind the library's scratch memory. */
static size_t late_offset(const struct way *way)
{
    return (way->workspace + 255) / 256 * 256;
}

static size_t workspace(const struct call *call)
{
    struct way *way;
    if (way_of(call, &way) != OK) return 0;
    return way->product.late ? late_offset(way) + late_bytes(&way->product) : way->workspace;
}

#define TILE 32

/* Our own: a block makes TILE x TILE of D, a thread four of them, one step of TILE terms at a time. */
template <class X, class Y>
__global__ void __launch_bounds__(TILE * 8)
plain_product(Y *d, const X *a, const X *b, const X *bias, const __grid_constant__ struct product p)
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

static enum status multiply_plainly(const struct call *call, const struct product *p,
                                    const struct operands *at)
{
    int64_t blocks = div_up(p->m, (int64_t)TILE) * div_up(p->n, (int64_t)TILE);
    return with_type(p->factor, [&](auto type) {
        using X = decltype(type);
        const X *a = (const X *)at->a, *b = (const X *)at->b, *bias = (const X *)at->bias;
        dim3 threads(TILE, 8);
        if (p->result == F32 && !p->late)
            plain_product<<<(unsigned)blocks, threads, 0, stream_of(call)>>>((float *)at->d, a, b, bias, *p);
        else
            plain_product<<<(unsigned)blocks, threads, 0, stream_of(call)>>>((X *)at->d, a, b, bias, *p);
        return launched(call);
    });
}

#define BIAS_THREADS 256
#define GRID_MOST 65535     /* of blocks in the grid's second dimension */

/* y = sums + bias, row by row. */
template <class T>
__global__ void __launch_bounds__(BIAS_THREADS)
add_bias(T *y, const float *sums, const T *bias, int64_t rows, int64_t columns)
{
    int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float start = to_float(bias[column]);
    int64_t step = (int64_t)gridDim.y * blockDim.y;
    for (int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += step)
        y[row * columns + column] = from_float<T>(start + sums[row * columns + column]);
}

static enum status finish_late(const struct call *call, const struct product *p, const float *sums)
{
    int across = power_up(p->m, BIAS_THREADS), down = BIAS_THREADS / across;
    int64_t deep = div_up(p->n, (int64_t)down);
    dim3 blocks((unsigned)div_up(p->m, (int64_t)across), (unsigned)(deep < GRID_MOST ? deep : GRID_MOST));
    return with_type(p->factor, [&](auto type) {
        using T = decltype(type);
        add_bias<<<blocks, dim3(across, down), 0, stream_of(call)>>>(
            (T *)call->y.data, sums, (const T *)call->params[1].data, p->n, p->m);
        return launched(call);
    });
}

static enum status run(const struct call *call)
{
    struct way *way;
    TRY(way_of(call, &way));
    const struct product *p = &way->product;
    struct operands at = operands_of(call);
    if (p->m * p->n == 0) return OK;
    if (!way->found) return multiply_plainly(call, p, &at);
    if (p->late) at.d = (char *)call->workspace + late_offset(way);
    TRY(library_status(call->device, multiply(way, &at, &way->algorithm, call->workspace, way->workspace,
                                              stream_of(call)), "a product"));
    return p->late ? finish_late(call, p, (const float *)at.d) : OK;
}

static enum status backward_data(const struct call *call)
{
    return call->d_x[0].data ? run(call) : OK;
}

/* The bias's gradient is d_y summed over the batch. */
static enum status backward_params(const struct call *call)
{
    struct shape d_y = call->d_y.shape;
    TRY(run(call));
    if (call->param_count < 2) return OK;
    return with_chunk(call->d_y.dtype, d_y.c, [&](auto type, auto wide) {
        using T = decltype(type);
        return sum_rows<float, T, decltype(wide)::number>(call, (float *)call->d_params[1].data,
                                                          (const T *)call->d_y.data, 1, d_y.n, d_y.c, 1);
    });
}

const struct op_code linear_cuda = {
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = run,
    .backward_data = backward_data,
    .backward_params = backward_params,
};
