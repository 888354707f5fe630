/* conv_product.cu: convolutions as products of matrices by cuBLASLt.
 *
 * "product": 1x1 convolutions: pixels are rows, channels columns. With a stride, the selected pixels are
 * first copied to the workspace, or copied back from it in the end.
 *
 * "gemm", "gemm-per-image": any convolution of one group, of all images at once or one after another: a row
 * has all that a pixel of y reads (kernels/conv/conv_columns.cu), in the workspace. "gemm" is worth it for
 * patches side by side, which take no more room as rows; otherwise they serve for comparisons, and are only
 * used by name.
 *
 * cuBLASLt's matrices are column-major: an image is its channels x pixels, weights are c x k. */
#include "kernels/support/chunk.cuh"
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/linear/matmul.cuh"

extern "C" {
#include "base/memory.h"
}

#define THREADS 256
#define SCRATCH_MAX ((size_t)64 << 20)   /* bytes that an algorithm may ask for */

struct conv_product {
    struct matmul *matmul;
    int images;     /* in one product */
    bool copies;    /* rows are made in the workspace */
    size_t scratch; /* where the algorithm's own workspace begins, behind the rows */
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

/* Columns that are added up to a gradient are fp32, so that it is as accurate as with other algorithms. */
static enum dtype column_type(const struct conv_product *product, const struct conv_problem *p)
{
    bool sums = product->copies && p->kernel[0] * p->kernel[1] > 1 && p->phase == PHASE_BACKWARD_DATA;
    return sums && !conv_is_patches(p) ? F32 : p->dtype;
}

/* Without its matmul. */
static struct conv_product product_of(const struct conv_problem *p, const struct conv_algorithm *algorithm)
{
    struct conv_product product = {.images = algorithm == &conv_by_gemm_per_image ? 1 : p->n};
    product.copies = !is_product(p) || is_strided(p);
    return product;
}

/* Deterministic products do not add partial sums in the order in which they arrive. */
static struct matmul_problem matmul_problem_of(const struct conv_product *product,
                                               const struct conv_problem *p)
{
    int64_t rows = (int64_t)product->images * p->out[0] * p->out[1];
    int64_t depth = (int64_t)p->c * p->kernel[0] * p->kernel[1];
    struct matmul_problem m = {.factor = p->dtype, .result = p->dtype, .m = depth, .n = rows, .k = p->k,
                               .bias = p->bias, .tf32 = p->tf32 && p->dtype == F32,
                               .any_order = p->dtype == F32 && !p->deterministic};
    if (p->phase == PHASE_FORWARD) m.m = p->k, m.k = depth, m.turn_a = true;
    else if (p->phase == PHASE_BACKWARD_DATA) m.result = column_type(product, p);
    else m.n = p->k, m.k = rows, m.turn_b = true, m.result = F32;
    return m;
}

static size_t rows_bytes(const struct conv_product *product, const struct conv_problem *p)
{
    if (!product->copies) return 0;
    size_t depth = (size_t)p->c * p->kernel[0] * p->kernel[1];
    return workspace_align((size_t)product->images * p->out[0] * p->out[1] * depth *
                           dtype_bytes(column_type(product, p)));
}

/* For the columns' kernels, which count words in 32 bits. In small problems in bf16 the library's results
 * were off by a few steps of that type. */
static bool fits(const struct conv_problem *p)
{
    return p->groups == 1 && (double)pixels(p) * p->kernel[0] * p->kernel[1] < 2e9 &&
           !(p->dtype == BF16 && conv_is_small(p));
}

static struct matmul_library library_of(const struct conv_algorithm *algorithm,
                                        const struct conv_tools *tools)
{
    return {.handle = tools->cublaslt, .prefix = algorithm->name, .scratch = SCRATCH_MAX};
}

static int candidates_by(const struct conv_algorithm *algorithm, const struct conv_problem *p,
                         const struct conv_tools *tools, int most, char names[][CANDIDATE_NAME])
{
    struct matmul_library library = library_of(algorithm, tools);
    struct conv_product product = product_of(p, algorithm);
    struct matmul_problem problem = matmul_problem_of(&product, p);
    return matmul_candidates(&library, &problem, most, names);
}

static int product_candidates(const struct conv_problem *p, const struct conv_tools *tools, int most,
                              char names[][CANDIDATE_NAME])
{
    return is_product(p) ? candidates_by(&conv_by_product, p, tools, most, names) : 0;
}

static int gemm_candidates(const struct conv_problem *p, const struct conv_tools *tools, int most,
                           char names[][CANDIDATE_NAME])
{
    if ((!tools->only && !conv_is_patches(p)) || !fits(p)) return 0;
    return candidates_by(&conv_by_gemm, p, tools, most, names);
}

static int gemm_per_image_candidates(const struct conv_problem *p, const struct conv_tools *tools, int most,
                                     char names[][CANDIDATE_NAME])
{
    if (!tools->only || !fits(p)) return 0;
    return candidates_by(&conv_by_gemm_per_image, p, tools, most, names);
}

static bool product_make(struct conv_plan *plan, const struct conv_tools *tools)
{
    const struct conv_problem *p = &plan->problem;
    struct matmul_library library = library_of(plan->algorithm, tools);
    struct conv_product product = product_of(p, plan->algorithm);
    struct matmul_problem problem = matmul_problem_of(&product, p);
    if (plan->algorithm == &conv_by_product ? !is_product(p) : !fits(p)) return false;
    product.matmul = matmul_make(&library, &problem, plan->name);
    if (!product.matmul) return false;
    product.scratch = rows_bytes(&product, p);
    plan->workspace = product.scratch + matmul_scratch(product.matmul);
    struct conv_product *state = (struct conv_product *)memory_new(1, sizeof *state);
    *state = product;
    plan->state = state;
    return true;
}

static void product_release(struct conv_plan *plan)
{
    matmul_close(((struct conv_product *)plan->state)->matmul);
    free(plan->state);
}

/* Copy between an image and the pixels that a stride selects; on the way back the others become zero. One
 * channel, or 16 bytes of channels, per thread. */
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

/* Copies between x of some images and their rows. */
static enum status copy_rows(const struct conv_plan *plan, const struct call *call, void *rows, void *x)
{
    const struct conv_product *product = (const struct conv_product *)plan->state;
    struct conv_problem some = plan->problem;
    some.n = product->images;
    if (is_product(&some)) return conv_copy_picked(&some, call, rows, x);
    if (some.phase != PHASE_BACKWARD_DATA) return conv_columns_make(&some, call, rows, x);
    return conv_columns_add(&some, call, column_type(product, &plan->problem), rows, x);
}

static void *image_at(const struct conv_problem *p, const void *images, int image, const int size[2],
                      int width)
{
    return (char *)images + (size_t)image * size[0] * size[1] * width * dtype_bytes(p->dtype);
}

/* Runs one product, for the images from `image` on. */
static enum status run_images(const struct conv_plan *plan, const struct call *call, int image)
{
    const struct conv_product *product = (const struct conv_product *)plan->state;
    const struct conv_problem *p = &plan->problem;
    struct conv_operands at = conv_operands(call);
    void *x = image_at(p, at.x, image, p->in, p->c), *y = image_at(p, at.y, image, p->out, p->k);
    void *rows = product->copies ? call->workspace : x;
    struct matmul_operands m = {.a = at.weight, .b = rows, .bias = at.bias, .d = y, .alpha = 1,
                                .scratch = (char *)call->workspace + product->scratch,
                                .trial = !plan->trusted};
    if (p->phase == PHASE_BACKWARD_DATA) {
        m.b = y, m.d = rows;
        TRY(matmul_run(product->matmul, call, &m));
        return product->copies ? copy_rows(plan, call, rows, x) : OK;
    }
    if (product->copies) TRY(copy_rows(plan, call, rows, x));
    if (p->phase == PHASE_BACKWARD_PARAMS) m.a = rows, m.b = y, m.d = at.weight;
    if (p->phase == PHASE_BACKWARD_PARAMS && image > 0) m.c = m.d;
    return matmul_run(product->matmul, call, &m);
}

static enum status product_run(const struct conv_plan *plan, const struct call *call,
                               const struct conv_tools *tools)
{
    (void)tools;
    int images = ((const struct conv_product *)plan->state)->images;
    for (int image = 0; image < plan->problem.n; image += images) TRY(run_images(plan, call, image));
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
