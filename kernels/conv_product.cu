/* conv_product.cu: convolutions as products of matrices by cuBLASLt.
 *
 * "product": 1x1 convolutions: pixels are rows, channels columns. With a stride, the pixels that count are
 * picked into the workspace first, or spread from it last.
 *
 * "gemm", "gemm-per-image": any convolution of one group, of all images at once or one after another: a row
 * has all that a pixel of y reads (kernels/conv_columns.cu), in the workspace. They are there to be compared
 * with, and only taken by name.
 *
 * cuBLASLt's matrices are column-major: an image is its channels x pixels, weights are c x k. */
#include "kernels/chunk.cuh"
#include "kernels/conv_cuda.cuh"
#include "kernels/cublaslt.cuh"

extern "C" {
#include "base/memory.h"
}

#define THREADS 256
#define ALGORITHMS 8                     /* worth timing */
#define SCRATCH_MAX ((size_t)64 << 20)   /* bytes that an algorithm may ask for */

/* d = op(a) * op(b), m x n, over k. */
struct conv_product {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    int images;     /* in one product */
    bool copies;    /* rows are made in the workspace */
    size_t scratch; /* where the algorithm's own workspace begins, behind the rows */
    size_t scratch_bytes;
};

static bool is_strided(const struct conv_problem *p)
{
    return p->stride[0] > 1 || p->stride[1] > 1;
}

static bool is_product(const struct conv_problem *p)
{
    return p->groups == 1 && p->kernel[0] == 1 && p->kernel[1] == 1 && p->pad[0] == 0 && p->pad[1] == 0;
}

static int64_t pixels(const struct conv_problem *p)
{
    return (int64_t)p->n * p->out[0] * p->out[1];
}

/* Columns that are added up to a gradient are fp32, so that it is as exact as others'. */
static enum dtype column_type(const struct conv_product *product, const struct conv_problem *p)
{
    bool sums = product->copies && p->kernel[0] * p->kernel[1] > 1 && p->phase == PHASE_BACKWARD_DATA;
    return sums ? F32 : p->dtype;
}

static bool matrix_make(cublasLtMatrixLayout_t *matrix, enum dtype dtype, int64_t rows, int64_t columns)
{
    return cublasLtMatrixLayoutCreate(matrix, cublaslt_type(dtype), (uint64_t)rows, (uint64_t)columns,
                                      rows) == CUBLAS_STATUS_SUCCESS;
}

static bool attribute_set(struct conv_product *product, cublasLtMatmulDescAttributes_t name,
                          const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(product->operation, name, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

static bool transposed(struct conv_product *product, cublasLtMatmulDescAttributes_t which)
{
    cublasOperation_t operation = CUBLAS_OP_T;
    return attribute_set(product, which, &operation, sizeof operation);
}

static bool matrices_make(struct conv_product *product, const struct conv_problem *p)
{
    int64_t rows = (int64_t)product->images * p->out[0] * p->out[1];
    int64_t depth = (int64_t)p->c * p->kernel[0] * p->kernel[1];
    if (p->phase == PHASE_FORWARD)
        return transposed(product, CUBLASLT_MATMUL_DESC_TRANSA) &&
               matrix_make(&product->a, p->dtype, depth, p->k) &&
               matrix_make(&product->b, p->dtype, depth, rows) &&
               matrix_make(&product->d, p->dtype, p->k, rows);
    if (p->phase == PHASE_BACKWARD_DATA)
        return matrix_make(&product->a, p->dtype, depth, p->k) &&
               matrix_make(&product->b, p->dtype, p->k, rows) &&
               matrix_make(&product->d, column_type(product, p), depth, rows);
    return transposed(product, CUBLASLT_MATMUL_DESC_TRANSB) &&
           matrix_make(&product->a, p->dtype, depth, rows) &&
           matrix_make(&product->b, p->dtype, p->k, rows) && matrix_make(&product->d, F32, depth, p->k);
}

static size_t rows_bytes(const struct conv_product *product, const struct conv_problem *p)
{
    if (!product->copies) return 0;
    size_t depth = (size_t)p->c * p->kernel[0] * p->kernel[1];
    return conv_align((size_t)product->images * p->out[0] * p->out[1] * depth *
                      dtype_bytes(column_type(product, p)));
}

static void product_free(struct conv_product *product)
{
    if (product->a) cublasLtMatrixLayoutDestroy(product->a);
    if (product->b) cublasLtMatrixLayoutDestroy(product->b);
    if (product->d) cublasLtMatrixLayoutDestroy(product->d);
    if (product->operation) cublasLtMatmulDescDestroy(product->operation);
}

/* All but the algorithm. */
static bool product_describe(struct conv_product *product, const struct conv_problem *p,
                             const struct conv_algorithm *algorithm)
{
    bool tf32 = p->dtype == F32 && p->tf32, plain = is_product(p) && !is_strided(p);
    cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    *product = (struct conv_product){};
    product->images = algorithm == &conv_by_gemm_per_image ? 1 : p->n;
    product->copies = !plain;
    bool good = cublasLtMatmulDescCreate(&product->operation, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
                matrices_make(product, p);
    if (good && p->bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        good = attribute_set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    }
    if (!good) product_free(product);
    return good;
}

/* For the columns' kernels, which count words in 32 bits. In small problems in bf16 the library's results were
 * off by a few steps of that type. */
static bool fits(const struct conv_problem *p)
{
    return p->groups == 1 && (double)pixels(p) * p->kernel[0] * p->kernel[1] < 2e9 &&
           !(p->dtype == BF16 && conv_is_small(p));
}

static int matmul_candidates(const struct conv_algorithm *algorithm, const struct conv_problem *p,
                             const struct conv_tools *tools, int most, char names[][CANDIDATE_NAME])
{
    struct conv_product product;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    int count = 0;
    /* Partial sums are added in fp32, and where bits must repeat not in the order in which they come. */
    bool free_order = p->dtype == F32 && !p->deterministic;
    uint32_t reductions =
        free_order ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    size_t scratch = SCRATCH_MAX;
    if (!product_describe(&product, p, algorithm)) return 0;
    if (cublasLtMatmulPreferenceCreate(&wish) == CUBLAS_STATUS_SUCCESS) {
        cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch,
                                             sizeof scratch);
        cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                             sizeof reductions);
        if (cublasLtMatmulAlgoGetHeuristic(tools->cublaslt, product.operation, product.a, product.b,
                                           product.d, product.d, wish, most < ALGORITHMS ? most : ALGORITHMS,
                                           found, &count) != CUBLAS_STATUS_SUCCESS)
            count = 0;
        cublasLtMatmulPreferenceDestroy(wish);
    }
    for (int i = 0; i < count; i++) cublaslt_print(algorithm->name, &found[i].algo, names[i]);
    product_free(&product);
    return count;
}

static int product_candidates(const struct conv_problem *p, const struct conv_tools *tools, int most,
                              char names[][CANDIDATE_NAME])
{
    return is_product(p) ? matmul_candidates(&conv_by_product, p, tools, most, names) : 0;
}

static int gemm_candidates(const struct conv_problem *p, const struct conv_tools *tools, int most,
                           char names[][CANDIDATE_NAME])
{
    if (!tools->only || !fits(p)) return 0;
    return matmul_candidates(&conv_by_gemm, p, tools, most, names);
}

static int gemm_per_image_candidates(const struct conv_problem *p, const struct conv_tools *tools, int most,
                                     char names[][CANDIDATE_NAME])
{
    if (!tools->only || !fits(p)) return 0;
    return matmul_candidates(&conv_by_gemm_per_image, p, tools, most, names);
}

static bool product_make(struct conv_plan *plan, const struct conv_tools *tools)
{
    struct conv_product made;
    cublasLtMatmulHeuristicResult_t result;
    bool can = plan->algorithm == &conv_by_product ? is_product(&plan->problem) : fits(&plan->problem);
    if (!can || !product_describe(&made, &plan->problem, plan->algorithm)) return false;
    if (!cublaslt_parse(plan->algorithm->name, plan->name, &made.algorithm) ||
        cublasLtMatmulAlgoCheck(tools->cublaslt, made.operation, made.a, made.b, made.d, made.d,
                                &made.algorithm, &result) != CUBLAS_STATUS_SUCCESS) {
        product_free(&made);
        return false;
    }
    made.scratch = rows_bytes(&made, &plan->problem);
    made.scratch_bytes = result.workspaceSize;
    plan->workspace = made.scratch + made.scratch_bytes;
    struct conv_product *state = (struct conv_product *)memory_new(1, sizeof *state);
    *state = made;
    plan->state = state;
    return true;
}

static void product_release(struct conv_plan *plan)
{
    product_free((struct conv_product *)plan->state);
    free(plan->state);
}

/* Between an image and those of its pixels that a stride hits; the others become zero on the way back. One
 * channel, or 16 bytes of them, a thread. */
template <class V>
__global__ void product_pick_kernel(struct conv_problem p, int width, V *picked, const V *x, int64_t count)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        unsigned rest = (unsigned)(i / width), c = (unsigned)(i % width);
        unsigned q = rest % p.out[1], row = rest / p.out[1];
        unsigned h = row % p.out[0] * p.stride[0], n = row / p.out[0];
        picked[i] = x[(((int64_t)n * p.in[0] + h) * p.in[1] + q * p.stride[1]) * width + c];
    }
}

template <class V>
__global__ void product_spread_kernel(struct conv_problem p, int width, V *x, const V *picked, int64_t count)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        unsigned rest = (unsigned)(i / width), c = (unsigned)(i % width);
        unsigned w = rest % p.in[1], row = rest / p.in[1];
        unsigned h = row % p.in[0], n = row / p.in[0], out_h = h / p.stride[0], out_w = w / p.stride[1];
        bool hit = h % p.stride[0] == 0 && w % p.stride[1] == 0 && out_h < (unsigned)p.out[0] &&
                   out_w < (unsigned)p.out[1];
        x[i] = hit ? picked[(((int64_t)n * p.out[0] + out_h) * p.out[1] + out_w) * width + c] : V();
    }
}

template <class V>
static enum status product_copy_pixels(const struct conv_problem *p, const struct call *call, V *picked, V *x)
{
    bool spread = p->phase == PHASE_BACKWARD_DATA;
    int width = (int)(p->c * dtype_bytes(p->dtype) / sizeof(V));
    int64_t count = (spread ? (int64_t)p->n * p->in[0] * p->in[1] : pixels(p)) * width;
    unsigned blocks = grid_of(call, count, THREADS, 4);
    cudaStream_t stream = stream_of(call);
    if (spread) product_spread_kernel<<<blocks, THREADS, 0, stream>>>(*p, width, x, picked, count);
    else product_pick_kernel<<<blocks, THREADS, 0, stream>>>(*p, width, picked, x, count);
    return launched(call);
}

enum status conv_copy_picked(const struct conv_problem *p, const struct call *call, void *picked, void *x)
{
    return with_word(p->c * dtype_bytes(p->dtype), [&](auto word) {
        using W = decltype(word);
        return product_copy_pixels(p, call, (W *)picked, (W *)x);
    });
}

/* Between the rows of some images and their x. */
static enum status copy_rows(const struct conv_plan *plan, const struct call *call, void *rows, void *x)
{
    const struct conv_product *product = (const struct conv_product *)plan->state;
    struct conv_problem some = plan->problem;
    some.n = product->images;
    if (is_product(&some)) return conv_copy_picked(&some, call, rows, x);
    if (some.phase != PHASE_BACKWARD_DATA) return conv_columns_make(&some, call, rows, x);
    return conv_columns_add(&some, call, column_type(product, &plan->problem), rows, x);
}

static enum status product_multiply(const struct conv_plan *plan, const struct call *call,
                                    const struct conv_tools *tools, const void *a, const void *b, void *d,
                                    float beta = 0)
{
    const struct conv_product *product = (const struct conv_product *)plan->state;
    float one = 1;
    cublasStatus_t error =
        cublasLtMatmul(tools->cublaslt, product->operation, &one, a, product->a, b, product->b, &beta, d,
                       product->d, d, product->d, &product->algorithm,
                       (char *)call->workspace + product->scratch, product->scratch_bytes, stream_of(call));
    if (error == CUBLAS_STATUS_SUCCESS) return OK;
    if (!plan->trusted) return NO_DEVICE;
    return fail(NO_DEVICE, "cuda:%d (%s): a convolution's product failed: %s", call->device->index,
                cuda_facts(call->device)->name, cublasLtGetStatusString(error));
}

static void *image_at(const struct conv_problem *p, const void *images, int image, const int size[2],
                      int width)
{
    return (char *)images + (size_t)image * size[0] * size[1] * width * dtype_bytes(p->dtype);
}

/* The images from `image` on that one product takes. */
static enum status run_images(const struct conv_plan *plan, const struct call *call,
                              const struct conv_tools *tools, int image)
{
    const struct conv_problem *p = &plan->problem;
    bool copies = ((const struct conv_product *)plan->state)->copies;
    struct conv_operands at = conv_operands(call);
    void *x = image_at(p, at.x, image, p->in, p->c), *y = image_at(p, at.y, image, p->out, p->k);
    void *rows = copies ? call->workspace : x;
    if (p->phase == PHASE_BACKWARD_DATA) {
        TRY(product_multiply(plan, call, tools, at.weight, y, rows));
        return copies ? copy_rows(plan, call, rows, x) : OK;
    }
    if (copies) TRY(copy_rows(plan, call, rows, x));
    if (p->phase == PHASE_FORWARD) return product_multiply(plan, call, tools, at.weight, rows, y);
    return product_multiply(plan, call, tools, rows, y, at.weight, image > 0 ? 1 : 0);
}

static enum status product_run(const struct conv_plan *plan, const struct call *call,
                               const struct conv_tools *tools)
{
    const struct conv_problem *p = &plan->problem;
    const struct conv_product *product = (const struct conv_product *)plan->state;
    void *bias = conv_operands(call).bias;
    if (p->bias)
        cublasLtMatmulDescSetAttribute(product->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                       sizeof bias);
    for (int image = 0; image < p->n; image += product->images)
        TRY(run_images(plan, call, tools, image));
    return OK;
}

const struct conv_algorithm conv_by_product = {
    .name = "product",
    .candidates = product_candidates,
    .make = product_make,
    .release = product_release,
    .run = product_run,
};

const struct conv_algorithm conv_by_gemm = {
    .name = "gemm",
    .candidates = gemm_candidates,
    .make = product_make,
    .release = product_release,
    .run = product_run,
};

const struct conv_algorithm conv_by_gemm_per_image = {
    .name = "gemm-per-image",
    .candidates = gemm_per_image_candidates,
    .make = product_make,
    .release = product_release,
    .run = product_run,
};
