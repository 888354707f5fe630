#include "kernels/linear/matmul.cuh"

extern "C" {
#include "base/memory.h"
}

#define ALGORITHMS 8                     /* worth timing */
#define ALGORITHM_WORDS ((int)(sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t)))

struct matmul {
    struct matmul_problem problem;
    cublasLtHandle_t handle;             /* NULL: there is no device */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    size_t scratch;
};

static cudaDataType_t cublaslt_type(enum dtype dtype)
{
    return dtype == F16 ? CUDA_R_16F : dtype == BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static bool attribute_set(const struct matmul *matmul, cublasLtMatmulDescAttributes_t name, const void *value,
                          size_t bytes)
{
    return !cublaslt()->cublasLtMatmulDescSetAttribute(matmul->operation, name, value, bytes);
}

static cublasLtEpilogue_t epilogue_of(const struct matmul_problem *p)
{
    if (p->mask) return CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    if (p->relu) return CUBLASLT_EPILOGUE_RELU_BIAS;
    return p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* The library judges the mask by its address, too: any that is a multiple of 256 stands for it. */
static bool describe_operation(struct matmul *matmul)
{
    const struct matmul_problem *p = &matmul->problem;
    cublasOperation_t turn_a = p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t turn_b = p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(p);
    cudaDataType_t bias = cublaslt_type(p->result);
    cublasComputeType_t compute = p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasLtPointerMode_t pointers = p->factors ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
    void *mask = (void *)256;
    return !cublaslt()->cublasLtMatmulDescCreate(&matmul->operation, compute, CUDA_R_32F) &&
           attribute_set(matmul, CUBLASLT_MATMUL_DESC_POINTER_MODE, &pointers, sizeof pointers) &&
           attribute_set(matmul, CUBLASLT_MATMUL_DESC_TRANSA, &turn_a, sizeof turn_a) &&
           attribute_set(matmul, CUBLASLT_MATMUL_DESC_TRANSB, &turn_b, sizeof turn_b) &&
           attribute_set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue) &&
           attribute_set(matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias) &&
           (!p->mask ||
            (attribute_set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->m, sizeof p->m) &&
             attribute_set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &mask, sizeof mask)));
}

/* Numbers from a matrix of a batch to the next one. */
static int64_t stride_of(const struct matmul_problem *p, int64_t numbers)
{
    return div_up(numbers, p->unit) * p->unit;
}

/* Of all matrices of the batch. */
static int64_t numbers_of(const struct matmul_problem *p, int64_t numbers)
{
    return p->batch > 1 ? p->batch * stride_of(p, numbers) : numbers;
}

static bool batch_set(cublasLtMatrixLayout_t layout, int count)
{
    int32_t batch = count;
    return !cublaslt()->cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                         sizeof batch);
}

static bool describe_batch(const struct matmul_problem *p, cublasLtMatrixLayout_t layout, int64_t numbers)
{
    int64_t stride = p->batch > 1 ? stride_of(p, numbers) : 0;
    return p->batch <= 1 ||
           (batch_set(layout, p->batch) &&
            !cublaslt()->cublasLtMatrixLayoutSetAttribute(
                layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

static bool describe_matrix(const struct matmul_problem *p, cublasLtMatrixLayout_t *layout, enum dtype dtype,
                            bool turned, int64_t rows, int64_t columns)
{
    int64_t down = turned ? columns : rows, across = turned ? rows : columns;
    return !cublaslt()->cublasLtMatrixLayoutCreate(layout, cublaslt_type(dtype), (uint64_t)down,
                                                   (uint64_t)across, down) &&
           describe_batch(p, *layout, rows * columns);
}

/* All but the algorithm. */
static bool describe(struct matmul *matmul)
{
    const struct matmul_problem *p = &matmul->problem;
    return describe_operation(matmul) && describe_matrix(p, &matmul->a, p->factor, p->turn_a, p->m, p->k) &&
           describe_matrix(p, &matmul->b, p->factor, p->turn_b, p->k, p->n) &&
           describe_matrix(p, &matmul->d, p->result, false, p->m, p->n);
}

static void undescribe(struct matmul *matmul)
{
    if (matmul->operation) cublaslt()->cublasLtMatmulDescDestroy(matmul->operation);
    if (matmul->a) cublaslt()->cublasLtMatrixLayoutDestroy(matmul->a);
    if (matmul->b) cublaslt()->cublasLtMatrixLayoutDestroy(matmul->b);
    if (matmul->d) cublaslt()->cublasLtMatrixLayoutDestroy(matmul->d);
}

void matmul_close(struct matmul *matmul)
{
    if (matmul) undescribe(matmul);
    free(matmul);
}

size_t matmul_scratch(const struct matmul *matmul)
{
    return matmul ? matmul->scratch : 0;
}

enum status matmul_run(const struct matmul *matmul, const struct call *call,
                       const struct matmul_operands *at)
{
    const struct matmul_problem *p = &matmul->problem;
    const float own_beta = !at->c ? 0 : at->beta != 0 ? at->beta : 1;
    const float *alpha = p->factors ? at->factors : &at->alpha, *beta = p->factors ? alpha + 1 : &own_beta;
    const void *c = at->c ? at->c : at->d;
    if (p->bias) attribute_set(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at->bias, sizeof at->bias);
    if (p->mask) attribute_set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &at->mask, sizeof at->mask);
    int batch = at->batch > 0 ? at->batch : p->batch;
    if (p->batch > 1) batch_set(matmul->a, batch), batch_set(matmul->b, batch), batch_set(matmul->d, batch);
    cublasStatus_t error = cublaslt()->cublasLtMatmul(
        matmul->handle, matmul->operation, alpha, at->a, matmul->a, at->b, matmul->b, beta, c,
        matmul->d, at->d, matmul->d, &matmul->algorithm, at->scratch, matmul->scratch, stream_of(call));
    if (error == CUBLAS_STATUS_SUCCESS) return OK;
    if (at->trial) return NO_DEVICE;
    return fail(NO_DEVICE, "cuda:%d (%s): a product failed: %s (cuBLASLt)", call->device->index,
                cuda_facts(call->device)->name, cublaslt()->cublasLtGetStatusString(error));
}

/* ---- Algorithms as candidates ---- */

/* `prefix` and the algorithm's bits. */
static void algorithm_print(const char *prefix, const cublasLtMatmulAlgo_t *algorithm,
                            char name[CANDIDATE_NAME])
{
    int length = snprintf(name, CANDIDATE_NAME, "%s ", prefix);
    for (int i = 0; i < ALGORITHM_WORDS; i++)
        length += snprintf(name + length, CANDIDATE_NAME - (size_t)length, "%016llx",
                           (unsigned long long)algorithm->data[i]);
}

static bool algorithm_parse(const char *prefix, const char *name, cublasLtMatmulAlgo_t *algorithm)
{
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0 || name[length] != ' ') return false;
    const char *at = name + length + 1;
    for (int i = 0; i < ALGORITHM_WORDS; i++, at += 16) {
        unsigned long long bits;
        if (strlen(at) < 16 || sscanf(at, "%16llx", &bits) != 1) return false;
        algorithm->data[i] = bits;
    }
    return *at == '\0';
}

int matmul_candidates(const struct matmul_library *library, const struct matmul_problem *problem, int most,
                      char names[][CANDIDATE_NAME])
{
    struct matmul matmul = {.problem = *problem};
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    cublasLtMatmulPreference_t wish = NULL;
    uint64_t scratch = library->scratch;
    uint32_t reductions = problem->batch > 1    ? CUBLASLT_REDUCTION_SCHEME_NONE
                          : problem->any_order ? CUBLASLT_REDUCTION_SCHEME_MASK
                                               : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct cublaslt *lt = cublaslt();
    int count = 0;
    if (!describe(&matmul) || lt->cublasLtMatmulPreferenceCreate(&wish) ||
        lt->cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch,
                                                 sizeof scratch) ||
        lt->cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &reductions, sizeof reductions) ||
        lt->cublasLtMatmulAlgoGetHeuristic(library->handle, matmul.operation, matmul.a, matmul.b, matmul.d,
                                           matmul.d, wish, most < ALGORITHMS ? most : ALGORITHMS, found,
                                           &count))
        count = 0;
    for (int i = 0; i < count; i++) algorithm_print(library->prefix, &found[i].algo, names[i]);
    if (wish) lt->cublasLtMatmulPreferenceDestroy(wish);
    undescribe(&matmul);
    return count;
}

struct matmul *matmul_make(const struct matmul_library *library, const struct matmul_problem *problem,
                           const char *name)
{
    cublasLtMatmulHeuristicResult_t result;
    struct matmul *matmul = (struct matmul *)memory_new(1, sizeof *matmul);
    *matmul = (struct matmul){.problem = *problem, .handle = library->handle};
    if (!describe(matmul) || !algorithm_parse(library->prefix, name, &matmul->algorithm) ||
        cublaslt()->cublasLtMatmulAlgoCheck(matmul->handle, matmul->operation, matmul->a, matmul->b,
                                            matmul->d, matmul->d, &matmul->algorithm, &result)) {
        matmul_close(matmul);
        return NULL;
    }
    matmul->scratch = result.workspaceSize;
    return matmul;
}

/* ---- What the autotuner asks ---- */

struct matmul_context {
    struct matmul_problem problem;
    struct matmul_library library;
};

static int matmul_plan_candidates(const void *self, int most, char names[][CANDIDATE_NAME])
{
    const struct matmul_context *context = (const struct matmul_context *)self;
    return matmul_candidates(&context->library, &context->problem, most, names);
}

static void *matmul_plan_make(const void *self, const char *name, size_t *workspace)
{
    const struct matmul_context *context = (const struct matmul_context *)self;
    struct matmul *matmul = matmul_make(&context->library, &context->problem, name);
    if (matmul) *workspace = matmul->scratch;
    return matmul;
}

static void matmul_plan_free(void *plan)
{
    matmul_close((struct matmul *)plan);
}

/* In trials, A is x, and B, D and the mask lie in y; a D of another type is the gradient of the weights, and
 * factors are what lies in the bias. */
struct trial_rooms {
    size_t d, mask, bytes;               /* of y */
    bool apart;                          /* D is not in y */
};

static struct trial_rooms trial_rooms_of(const struct matmul_problem *p)
{
    struct trial_rooms rooms = {.apart = p->result != p->factor};
    size_t size = dtype_bytes(p->factor);
    rooms.d = workspace_align((size_t)numbers_of(p, p->k * p->n) * size);
    rooms.mask = rooms.d + (rooms.apart ? 0 : workspace_align((size_t)numbers_of(p, p->m * p->n) * size));
    rooms.bytes = rooms.mask + (p->mask ? workspace_align((size_t)(p->m * p->n / 8)) : 0);
    return rooms;
}

static enum status matmul_plan_try(const void *self, void *plan, const struct call *call)
{
    const struct matmul_context *context = (const struct matmul_context *)self;
    struct trial_rooms rooms = trial_rooms_of(&context->problem);
    char *y = (char *)call->y.data;
    void *d = rooms.apart ? call->d_params[0].data : y + rooms.d;
    struct matmul_operands at = {.a = call->x[0].data, .b = y, .bias = call->params[1].data,
                                 .c = context->problem.adds ? d : NULL, .d = d, .mask = y + rooms.mask,
                                 .alpha = 1, .factors = (const float *)call->params[1].data,
                                 .scratch = call->workspace, .trial = true};
    return matmul_run((const struct matmul *)plan, call, &at);
}

static const struct autotune_functions functions = {
    .candidates = matmul_plan_candidates,
    .fallback = "none",
    .plan_make = matmul_plan_make,
    .plan_free = matmul_plan_free,
    .plan_try = matmul_plan_try,
};

/* ---- Choosing ---- */

static char *matmul_key_new(const struct matmul_problem *p, const struct device *device)
{
    char batch[16] = "";
    if (p->batch > 1) snprintf(batch, sizeof batch, " x %d", p->batch);
    return text_format("%s, cuBLASLt %zu, matmul %s%s %s%s to %s%s%s%s%s%s %lld x %lld x %lld%s",
                       cuda_facts(device)->name, cublaslt()->cublasLtGetVersion(),
                       p->tf32 ? "tf32" : dtype_table[p->factor].name,
                       p->deterministic ? " deterministic" : "", p->turn_a ? "T" : "N", p->turn_b ? "T" : "N",
                       dtype_table[p->result].name, p->factors ? " factors" : "", p->adds ? " added" : "",
                       p->bias ? " bias" : "", p->relu ? " relu" : "", p->mask ? " mask" : "",
                       (long long)p->m, (long long)p->n, (long long)p->k, batch);
}

static enum status matmul_choose(const struct matmul_context *context, struct device *device, void **plan)
{
    const struct matmul_problem *p = &context->problem;
    struct trial_rooms rooms = trial_rooms_of(p);
    char *key = matmul_key_new(p, device);
    struct autotune_problem problem = {
        .functions = &functions, .self = context, .device = device, .key = key,
        .deterministic = p->deterministic, .workspace_limit = MATMUL_SCRATCH, .phase = PHASE_FORWARD,
        .dtype = p->factor, .x = shape_vector(numbers_of(p, p->m * p->k)),
        .y = shape_vector((int64_t)(rooms.bytes / dtype_bytes(p->factor))),
        .weight = {.rank = 2, .dim = {p->m, rooms.apart ? p->n : 1, 1, 1}}, .bias = true,
    };
    enum status status = autotune(&problem, plan);
    if (status == OK && !*plan) status = fail(FAILED, "%s: no algorithm supports it", key);
    free(key);
    return status;
}

enum status matmul_open(const struct matmul_problem *problem, struct device *device, struct matmul **made)
{
    struct matmul_context context = {*problem, {.prefix = "cublaslt", .scratch = MATMUL_SCRATCH}};
    void *plan = NULL;
    if (device) {
        TRY(cuda_cublaslt(device, &context.library.handle));
        TRY(matmul_choose(&context, device, &plan));
    } else {
        plan = memory_new(1, sizeof(struct matmul));
        ((struct matmul *)plan)->scratch = MATMUL_SCRATCH;
    }
    *made = (struct matmul *)plan;
    (*made)->problem = *problem;
    return OK;
}
