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

#define SCRATCH_MAX ((size_t)64 << 20)   /* bytes that an algorithm may ask for */

struct conv_product {
    struct matmul *matmul;
    int images;     /* in one product */
    bool copies;    /* rows are made in the workspace */
    size_t scratch; /* where the algorithm's own workspace begins, behind the rows */
};

static bool is_strided(const struct conv_sizes *p)
{
    return p->stride[0] > 1 || p->stride[1] > 1;
}

static bool is_product(const struct conv_sizes *p)
{
    return p->groups == 1 && p->kernel[0] == 1 && p->kernel[1] == 1 && p->pad[0] == 0 && p->pad[1] == 0;
}

static int64_t pixels(const struct conv_sizes *p)
{
    return (int64_t)p->n * p->out[0] * p->out[1];
}

/* Columns that are added up to a gradient are fp32, so that it is as accurate as with other algorithms. */
static enum dtype column_type(const struct conv_product *product, const struct conv_call *p)
{
    bool sums = product->copies && p->kernel[0] * p->kernel[1] > 1 && p->phase == PHASE_BACKWARD_DATA;
    return sums && !conv_is_patches(p) ? F32 : p->dtype;
}

/* Without its matmul. */
static struct conv_product product_of(const struct conv_call *p, const struct algorithm *algorithm)
{
    struct conv_product product = {.images = algorithm == &conv_by_gemm_per_image ? 1 : p->n};
    product.copies = !is_product(p) || is_strided(p);
    return product;
}

/* Deterministic products do not add partial sums in the order in which they arrive. */
static struct matmul_problem matmul_problem_of(const struct conv_product *product,
                                               const struct conv_call *p)
{
    int64_t rows = (int64_t)product->images * p->out[0] * p->out[1];
    int64_t depth = (int64_t)p->c * p->kernel[0] * p->kernel[1];
    struct matmul_problem m = {.factor = p->dtype, .result = p->dtype, .m = depth, .n = rows, .k = p->k,
                               .bias = conv_adds_bias(p->call), .tf32 = p->call->tf32 && p->dtype == F32,
                               .any_order = p->dtype == F32 && !p->call->deterministic};
    if (p->phase == PHASE_FORWARD) m.m = p->k, m.k = depth, m.turn_a = true;
    else if (p->phase == PHASE_BACKWARD_DATA) m.result = column_type(product, p);
    else m.n = p->k, m.k = rows, m.turn_b = true, m.result = F32;
    return m;
}

static size_t rows_bytes(const struct conv_product *product, const struct conv_call *p)
{
    if (!product->copies) return 0;
    size_t depth = (size_t)p->c * p->kernel[0] * p->kernel[1];
    return workspace_align((size_t)product->images * p->out[0] * p->out[1] * depth *
                           dtype_bytes(column_type(product, p)));
}

/* For the columns' kernels, which count words in 32 bits. In small problems in bf16 the library's results
 * were off by a few steps of that type. */
static bool fits(const struct conv_call *p)
{
    return p->groups == 1 && (double)pixels(p) * p->kernel[0] * p->kernel[1] < 2e9 &&
           !(p->dtype == BF16 && conv_is_small(p));
}

static bool library_of(const struct call *call, const struct algorithm *algorithm,
                       struct matmul_library *library)
{
    *library = {.prefix = algorithm->name, .scratch = SCRATCH_MAX};
    return cuda_cublaslt(call->device, &library->handle) == OK;
}

static int candidates_by(const struct algorithm *algorithm, const struct call *call, int most,
                         char names[][PLAN_NAME])
{
    const struct conv_call p = conv_call_of(call);
    struct matmul_library library;
    struct conv_product product = product_of(&p, algorithm);
    struct matmul_problem problem = matmul_problem_of(&product, &p);
    return library_of(call, algorithm, &library) ? matmul_candidates(&library, &problem, most, names) : 0;
}

/* Leaves out small problems in bf16, as `fits` does, where filters are no whole vectors. */
static bool product_supports(const struct call *call)
{
    const struct conv_call p = conv_call_of(call);
    bool rough = p.dtype == BF16 && p.k % 8 != 0 && conv_is_small(&p);
    return conv_is_usual(call) && is_product(&p) && !rough;
}

static int product_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    return candidates_by(&conv_by_product, call, most, names);
}

static bool gemm_supports(const struct call *call)
{
    const struct conv_call p = conv_call_of(call);
    return conv_is_usual(call) && fits(&p);
}

static int gemm_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    const struct conv_call p = conv_call_of(call);
    return call->variant || conv_is_patches(&p) ? candidates_by(&conv_by_gemm, call, most, names) : 0;
}

static int gemm_per_image_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    return call->variant ? candidates_by(&conv_by_gemm_per_image, call, most, names) : 0;
}

static bool product_make(const struct call *call, struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    struct matmul_library library;
    struct conv_product product = product_of(&p, plan->algorithm);
    struct matmul_problem problem = matmul_problem_of(&product, &p);
    if (!library_of(call, plan->algorithm, &library)) return false;
    product.matmul = matmul_make(&library, &problem, plan->name);
    if (!product.matmul) return false;
    product.scratch = rows_bytes(&product, &p);
    plan->workspace = product.scratch + matmul_scratch(product.matmul);
    struct conv_product *state = (struct conv_product *)memory_new(1, sizeof *state);
    *state = product;
    plan->state = state;
    return true;
}

static void product_release(struct kernel_plan *plan)
{
    matmul_close(((struct conv_product *)plan->state)->matmul);
    free(plan->state);
}

/* Copies between x of some images and their rows. */
static enum status copy_rows(const struct conv_product *product, const struct conv_call *p, void *rows,
                             void *x)
{
    struct conv_call some = *p;
    some.n = product->images;
    struct pick pick = {some.dtype, some.n, some.c, {some.in[0], some.in[1]}, {some.out[0], some.out[1]},
                        {some.stride[0], some.stride[1]}};
    bool back = some.phase == PHASE_BACKWARD_DATA;
    if (is_product(&some) && back) return copy_spread(some.call, &pick, x, rows);
    if (is_product(&some)) return copy_picked(some.call, &pick, rows, x);
    if (!back) return conv_columns_make(&some, rows, x);
    return conv_columns_add(&some, column_type(product, p), rows, x);
}

static void *image_at(const struct conv_call *p, const void *images, int image, const int size[2], int width)
{
    return (char *)images + (size_t)image * size[0] * size[1] * width * dtype_bytes(p->dtype);
}

/* Runs one product, for the images from `image` on. */
static enum status run_images(const struct conv_call *p, const struct kernel_plan *plan, int image)
{
    const struct conv_product *product = (const struct conv_product *)plan->state;
    const struct call *call = p->call;
    void *x = image_at(p, conv_x(call), image, p->in, p->c);
    void *y = image_at(p, conv_y(call), image, p->out, p->k);
    void *rows = product->copies ? call->workspace : x, *weight = conv_weight(call);
    struct matmul_operands m = {.a = weight, .b = rows, .bias = conv_bias(call), .d = y, .alpha = 1,
                                .scratch = (char *)call->workspace + product->scratch,
                                .trial = !plan->trusted};
    if (p->phase == PHASE_BACKWARD_DATA) {
        m.b = y, m.d = rows;
        TRY(matmul_run(product->matmul, call, &m));
        return product->copies ? copy_rows(product, p, rows, x) : OK;
    }
    if (product->copies) TRY(copy_rows(product, p, rows, x));
    if (p->phase == PHASE_BACKWARD_PARAMS) m.a = rows, m.b = y, m.d = weight;
    if (p->phase == PHASE_BACKWARD_PARAMS && image > 0) m.c = m.d;
    return matmul_run(product->matmul, call, &m);
}

static enum status product_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    int images = ((const struct conv_product *)plan->state)->images;
    for (int image = 0; image < p.n; image += images) TRY(run_images(&p, plan, image));
    return OK;
}

const struct algorithm conv_by_product = {
    .name = "product",
    .supports = product_supports,
    .candidates = product_candidates,
    .make = product_make,
    .run = product_run,
    .release = product_release,
};

const struct algorithm conv_by_gemm = {
    .name = "gemm",
    .supports = gemm_supports,
    .candidates = gemm_candidates,
    .make = product_make,
    .run = product_run,
    .release = product_release,
};

const struct algorithm conv_by_gemm_per_image = {
    .name = "gemm-per-image",
    .supports = gemm_supports,
    .candidates = gemm_per_image_candidates,
    .make = product_make,
    .run = product_run,
    .release = product_release,
};
