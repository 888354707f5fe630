/* conv_rows.cu: "rows": convolutions whose kernel is as large as their stride, as the transposed ones of a
 * U-Net are, by cuBLASLt without a copy of x: what a row of y's pixels reads through one row of the kernel is
 * a matrix, one row of x, of kernel x channels numbers a pixel. The rows of all images are a batch of
 * products; those of the kernel's rows follow each other, and forward adds them up in y: of fp32 alone.
 *
 * cuBLASLt's matrices are column-major, as in conv_product.cu. */
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/linear/matmul.cuh"

#define SCRATCH_MAX ((size_t)64 << 20)   /* bytes that an algorithm may ask for */

/* Numbers of x that a pixel of y reads in a row of the kernel, and the rest of their matrices. */
static int64_t width_of(const struct conv_call *p)
{
    return (int64_t)p->kernel[1] * p->c;
}

static bool adds_bias(const struct call *call)
{
    return call->phase == PHASE_BACKWARD_DATA && planned_adds_bias(call);
}

static bool rows_supports(const struct call *call)
{
    const struct conv_call p = conv_call_of(call);
    bool exact = p.in[0] == p.out[0] * p.kernel[0] && p.in[1] == p.out[1] * p.kernel[1];
    bool rounds = p.dtype != F32 && p.kernel[0] > 1;
    bool plain = call->phase == PHASE_BACKWARD_DATA || (call->phase == PHASE_FORWARD && !rounds &&
                                                        call->param_count == 1 && call_is_plain(call));
    return conv_is_usual(call) && conv_is_patches(&p) && exact && plain;
}

static struct matmul_problem problem_of(const struct conv_call *p)
{
    int64_t width = width_of(p), row = p->kernel[0] * p->out[1] * width;
    const struct matmul_place weight = {p->kernel[0] * width, 0}, x = {width, row};
    const struct matmul_place y = {p->k, (int64_t)p->out[1] * p->k};
    struct matmul_problem m = {.factor = p->dtype, .result = p->dtype, .n = p->out[1],
                               .batch = (int64_t)p->n * p->out[0], .placed = true, .a_at = weight,
                               .bias = adds_bias(p->call), .tf32 = p->call->tf32 && p->dtype == F32};
    if (p->phase == PHASE_FORWARD) m.m = p->k, m.k = width, m.turn_a = true, m.b_at = x, m.d_at = y;
    else m.m = width, m.k = p->k, m.b_at = y, m.d_at = x;
    return m;
}

static bool library_of(const struct call *call, struct matmul_library *library)
{
    *library = {.prefix = conv_by_rows.name, .scratch = SCRATCH_MAX};
    return cuda_cublaslt(call->device, &library->handle) == OK;
}

static int rows_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    const struct conv_call p = conv_call_of(call);
    struct matmul_library library;
    struct matmul_problem problem = problem_of(&p);
    return library_of(call, &library) ? matmul_candidates(&library, &problem, most, names) : 0;
}

/* The bias is needed once for each of the kernel's columns. */
static size_t bias_bytes(const struct conv_call *p)
{
    return adds_bias(p->call) ? workspace_align((size_t)width_of(p) * dtype_bytes(p->dtype)) : 0;
}

static bool rows_make(const struct call *call, struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    struct matmul_library library;
    struct matmul_problem problem = problem_of(&p);
    struct matmul *matmul = NULL;
    if (library_of(call, &library)) matmul = matmul_make(&library, &problem, plan->name);
    if (!matmul) return false;
    plan->workspace = bias_bytes(&p) + matmul_scratch(matmul);
    if (adds_bias(call)) plan->epilogues = AS_BIT(EPILOGUE_ADD);
    plan->state = matmul;
    return true;
}

static void rows_release(struct kernel_plan *plan)
{
    matmul_close((struct matmul *)plan->state);
}

template <class T> __global__ void repeat_bias_kernel(T *to, const T *bias, int c, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = bias[i % c];
}

static enum status repeat_bias(const struct conv_call *p)
{
    return with_type(p->dtype, [&](auto type) {
        using T = decltype(type);
        int count = (int)width_of(p);
        repeat_bias_kernel<<<div_up(count, 256), 256, 0, stream_of(p->call)>>>(
            (T *)p->call->workspace, (const T *)call_data(p->call, OPERAND_D_X_ADDEND), p->c, count);
        return launched(p->call);
    });
}

static enum status rows_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    size_t size = dtype_bytes(p.dtype), width = (size_t)width_of(&p) * size;
    bool forward = p.phase == PHASE_FORWARD;
    struct matmul_operands m = {.bias = call->workspace, .alpha = 1,
                                .scratch = (char *)call->workspace + bias_bytes(&p), .trial = !plan->trusted};
    if (adds_bias(call)) TRY(repeat_bias(&p));
    for (int r = 0; r < p.kernel[0]; r++) {
        char *x = (char *)conv_x(call) + (size_t)r * p.out[1] * width;
        m.a = (char *)conv_weight(call) + (size_t)r * width;
        m.b = forward ? x : (char *)conv_y(call), m.d = forward ? conv_y(call) : x;
        m.c = forward && r > 0 ? m.d : NULL;
        TRY(matmul_run((const struct matmul *)plan->state, call, &m));
    }
    return OK;
}

const struct algorithm conv_by_rows = {
    .name = "rows",
    .supports = rows_supports,
    .candidates = rows_candidates,
    .make = rows_make,
    .run = rows_run,
    .release = rows_release,
};
