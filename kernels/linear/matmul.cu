#include "kernels/linear/matmul.cuh"

#include <limits.h>

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

/* Sizes of all matrices of the batch. */
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

static bool describe_batch(const struct matmul_problem *p, cublasLtMatrixLayout_t layout, int64_t stride)
{
    return p->batch <= 1 ||
           (batch_set(layout, (int)p->batch) &&
            !cublaslt()->cublasLtMatrixLayoutSetAttribute(
                layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

struct matrix {
    enum dtype dtype;
    bool turned;
    int64_t rows, columns;
    struct matmul_place at;
};

static bool describe_matrix(const struct matmul_problem *p, cublasLtMatrixLayout_t *layout, struct matrix m)
{
    int64_t down = m.turned ? m.columns : m.rows, across = m.turned ? m.rows : m.columns;
    int64_t lead = p->placed ? m.at.column : down;
    int64_t stride = p->placed ? m.at.matrix : p->batch > 1 ? stride_of(p, m.rows * m.columns) : 0;
    return !cublaslt()->cublasLtMatrixLayoutCreate(layout, cublaslt_type(m.dtype), (uint64_t)down,
                                                   (uint64_t)across, lead) &&
           describe_batch(p, *layout, stride);
}

/* All but the algorithm. */
static bool describe(struct matmul *matmul)
{
    const struct matmul_problem *p = &matmul->problem;
    return describe_operation(matmul) &&
           describe_matrix(p, &matmul->a, {p->factor, p->turn_a, p->m, p->k, p->a_at}) &&
           describe_matrix(p, &matmul->b, {p->factor, p->turn_b, p->k, p->n, p->b_at}) &&
           describe_matrix(p, &matmul->d, {p->result, false, p->m, p->n, p->d_at});
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
    int batch = at->batch > 0 ? at->batch : (int)p->batch;
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
                            char name[PLAN_NAME])
{
    int length = snprintf(name, PLAN_NAME, "%s ", prefix);
    for (int i = 0; i < ALGORITHM_WORDS; i++)
        length += snprintf(name + length, PLAN_NAME - (size_t)length, "%016llx",
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
                      char names[][PLAN_NAME])
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

/* ---- The product as a call ---- */

/* The settings of the call that a product is: what its tensors, parameters and epilogues do not say. */
static const struct field fields[] = {
#define AT(member) offsetof(struct matmul_problem, member)
    {.name = "turn_a", .type = FIELD_BOOL, .offset = AT(turn_a), .initial = "no"},
    {.name = "turn_b", .type = FIELD_BOOL, .offset = AT(turn_b), .initial = "no"},
    {.name = "adds", .type = FIELD_BOOL, .offset = AT(adds), .initial = "no"},
    {.name = "factors", .type = FIELD_BOOL, .offset = AT(factors), .initial = "no"},
    {.name = "bias", .type = FIELD_BOOL, .offset = AT(bias), .initial = "no"},
    {.name = "relu", .type = FIELD_BOOL, .offset = AT(relu), .initial = "no"},
    {.name = "mask", .type = FIELD_BOOL, .offset = AT(mask), .initial = "no"},
    {.name = "batch", .type = FIELD_INT, .offset = AT(batch), .initial = "0", .max = INT_MAX},
    {.name = "any_order", .type = FIELD_BOOL, .offset = AT(any_order), .initial = "no"},
    {},
#undef AT
};
static const struct op matmul_op = {.name = "matmul", .settings_size = sizeof(struct matmul_problem),
                                    .fields = fields};

static const struct matmul_problem *problem_of(const struct call *call)
{
    return (const struct matmul_problem *)call->settings;
}

static bool library_of(const struct call *call, struct matmul_library *library)
{
    *library = {.prefix = "cublaslt", .scratch = MATMUL_SCRATCH};
    return cuda_cublaslt(call->device, &library->handle) == OK;
}

static int plan_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    struct matmul_library library;
    return library_of(call, &library) ? matmul_candidates(&library, problem_of(call), most, names) : 0;
}

static bool plan_make(const struct call *call, struct kernel_plan *plan)
{
    struct matmul_library library;
    struct matmul *matmul = NULL;
    if (library_of(call, &library)) matmul = matmul_make(&library, problem_of(call), plan->name);
    plan->state = matmul;
    if (matmul) plan->workspace = matmul->scratch;
    return matmul;
}

static void plan_release(struct kernel_plan *plan)
{
    matmul_close((struct matmul *)plan->state);
}

/* Trials add D to itself, and their factors lie in the bias. */
static enum status plan_run(const struct call *call, const struct kernel_plan *plan)
{
    struct matmul_operands at = {.a = call->x[0].data, .b = call->x[1].data, .bias = call->params[0].data,
                                 .c = problem_of(call)->adds ? call->y.data : NULL, .d = call->y.data,
                                 .mask = call_data(call, OPERAND_MASK), .alpha = 1,
                                 .factors = (const float *)call->params[0].data, .scratch = call->workspace,
                                 .trial = true};
    return matmul_run((const struct matmul *)plan->state, call, &at);
}

static const struct algorithm by_library = {
    .name = "cublaslt", .candidates = plan_candidates, .make = plan_make, .run = plan_run,
    .release = plan_release,
};
static const struct algorithm *const algorithms[] = {&by_library, NULL};

/* All matrices of a batch, with what is between them, are a vector. */
static struct shape matrix_shape(const struct matmul_problem *p, int64_t rows, int64_t columns)
{
    if (p->batch > 1) return shape_vector(numbers_of(p, rows * columns));
    return {.rank = 2, .dim = {rows, columns, 1, 1}};
}

static enum status plan_choose(const struct matmul_problem *p, struct device *device,
                               struct kernel_plan **plan)
{
    struct tensor x[] = {{.dtype = p->factor, .shape = matrix_shape(p, p->m, p->k)},
                         {.dtype = p->factor, .shape = matrix_shape(p, p->k, p->n)}}, none[2] = {};
    struct tensor bias = {.dtype = F32, .shape = shape_vector(p->bias || p->factors ? p->m + 2 : 2)};
    struct call call = {.op = &matmul_op, .settings = p, .phase = PHASE_FORWARD, .x_count = 2,
                        .param_count = 1, .x = x, .d_x = none, .params = &bias, .d_params = none,
                        .tf32 = p->tf32, .deterministic = p->deterministic, .device = device};
    call.y = {.dtype = p->result, .shape = matrix_shape(p, p->m, p->n)};
    if (p->mask) *call_put(&call, OPERAND_MASK) = {.dtype = U8, .shape = shape_vector(p->m * p->n / 8)};
    return autotune(algorithms, &call, MATMUL_SCRATCH, plan);
}

enum status matmul_open(const struct matmul_problem *problem, struct device *device, struct matmul **made)
{
    struct kernel_plan *plan = NULL;
    if (device) {
        TRY(plan_choose(problem, device, &plan));
        *made = (struct matmul *)plan->state;
        free(plan);
    } else {
        *made = (struct matmul *)memory_new(1, sizeof **made);
        (*made)->scratch = MATMUL_SCRATCH;
    }
    (*made)->problem = *problem;
    return OK;
}
