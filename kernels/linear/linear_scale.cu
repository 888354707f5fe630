/* linear_scale.cu: products by cuBLASLt of weights that a small kernel has multiplied by the factors; another
 * turns the gradients of these weights into those of weights, biases and factors.
 *
 * Factors begin at 1e-6 or less (Touvron et al. 2021), with which weights in fp16 would be subnormal or 0. So
 * they are divided by the power of two above the largest, by which the product is multiplied. */
#include "kernels/linear/linear.cuh"
#include "kernels/support/block.cuh"
#include "kernels/support/columns.cuh"

#define THREADS 256

static bool has_bias(const struct call *call) { return call->param_count > 2; }

static const float *factors_of(const struct call *call)
{
    return (const float *)call->params[call->param_count - 1].data;
}

/* ---- Products ---- */

static struct matmul_problem problem_of(const struct call *call)
{
    struct matmul_problem p = linear_product(call);
    bool forward = call->phase == PHASE_FORWARD;
    p.factors = call->phase != PHASE_BACKWARD_PARAMS;
    p.adds = forward && call_operand(call, OPERAND_Y_ADDEND);
    p.bias = forward && has_bias(call);
    return p;
}

static const struct matmul *matmul_of(const struct call *call)
{
    return (const struct matmul *)call->kernel_plan->state;
}

/* ---- The workspace ---- */

/* Offsets in bytes; scratch memory is at the beginning. */
struct workspace_layout {
    size_t weight, bias, factors, bytes;
};

static struct workspace_layout layout_of(const struct call *call, size_t scratch)
{
    struct workspace_layout r = {.bytes = workspace_align(scratch)};
    if (call->phase == PHASE_BACKWARD_PARAMS) {
        size_t sums = has_bias(call) ? columns_workspace(&call->d_y, false) : 0;
        r.bytes = sums > scratch ? sums : scratch;
        return r;
    }
    r.weight = r.bytes;
    r.bias = r.weight + workspace_align(tensor_bytes(&call->params[0]));
    r.factors = r.bias + (has_bias(call) ? workspace_align(tensor_bytes(&call->params[1])) : 0);
    r.bytes = r.factors + 2 * sizeof(float);
    return r;
}

/* ---- Small kernels ---- */

template <class T> struct scaled {
    T *weight, *bias;            /* [units, inputs], [units]; no bias: NULL */
    float *factors;              /* the product's, and that of what is added */
    const T *from_weight, *from_bias;
    const float *factor;         /* [units] */
    int64_t units, inputs;
    bool adds;
};

/* The exponent e of the largest of finite factors, which is below 2^e. */
__device__ static inline int exponent_of_largest(const float *factor, int64_t units)
{
    float largest = 0;
    int exponent;
    for (int64_t u = threadIdx.x; u < units; u += THREADS) largest = fmaxf(largest, fabsf(factor[u]));
    largest = block_reduce<THREADS>(largest, [](float a, float b) { return fmaxf(a, b); });
    if (largest == 0 || !isfinite(largest)) return 0;
    frexpf(largest, &exponent);
    return exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
}

/* Multiplies the weights and the biases; biases by whole factors, since they are added to the product. */
template <class T, int width>
__global__ void __launch_bounds__(THREADS) scale_weights_kernel(struct scaled<T> s)
{
    int exponent = exponent_of_largest(s.factor, s.units);
    int64_t step = (int64_t)gridDim.x * THREADS, first = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (int64_t at = first * width; at < s.units * s.inputs; at += step * width) {
        chunk<T, width> weight = *(const chunk<T, width> *)(s.from_weight + at);
        float factor = ldexpf(s.factor[at / s.inputs], -exponent);
#pragma unroll
        for (int e = 0; e < width; e++) weight.at[e] = from_float<T>(factor * to_float(weight.at[e]));
        *(chunk<T, width> *)(s.weight + at) = weight;
    }
    for (int64_t u = first; s.bias && u < s.units; u += step)
        s.bias[u] = from_float<T>(s.factor[u] * to_float(s.from_bias[u]));
    if (first == 0) s.factors[0] = ldexpf(1, exponent), s.factors[1] = s.adds;
}

template <class T> struct unscaled {
    float *d_weight, *d_bias;    /* of scaled weights and biases; they become those without the factors */
    float *d_factor;
    const T *weight, *bias;
    const float *factor;
    int64_t inputs;
};

/* One block for each unit. */
template <class T, int width>
__global__ void __launch_bounds__(THREADS) unscale_gradients_kernel(struct unscaled<T> s)
{
    int64_t unit = blockIdx.x;
    float factor = s.factor[unit], product = 0;
    float *d_weight = s.d_weight + unit * s.inputs;
    for (int64_t c = (int64_t)threadIdx.x * width; c < s.inputs; c += THREADS * width) {
        chunk<T, width> weight = *(const chunk<T, width> *)(s.weight + unit * s.inputs + c);
        chunk<float, width> d = *(const chunk<float, width> *)(d_weight + c);
#pragma unroll
        for (int e = 0; e < width; e++) {
            product = fmaf(to_float(weight.at[e]), d.at[e], product);
            d.at[e] *= factor;
        }
        *(chunk<float, width> *)(d_weight + c) = d;
    }
    product = block_sum<THREADS>(product);
    if (threadIdx.x != 0) return;
    if (s.d_bias) {
        product = fmaf(to_float(s.bias[unit]), s.d_bias[unit], product);
        s.d_bias[unit] *= factor;
    }
    s.d_factor[unit] = product;
}

/* ---- Phases ---- */

/* Forward, or backward_data, of whose tensors `b` and `d` are. */
static enum status multiply(const struct call *call, const void *b, void *d)
{
    struct workspace_layout r = layout_of(call, matmul_scratch(matmul_of(call)));
    char *room = (char *)call->workspace;
    const void *c = call_data(call, OPERAND_Y_ADDEND);
    struct shape weight = call->params[0].shape;
    float *factors = (float *)(room + r.factors);
    void *bias = has_bias(call) ? room + r.bias : NULL;
    TRY(with_chunk(call->params[0].dtype, weight.dim[1], [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct scaled<T> s = {(T *)(room + r.weight), (T *)bias, factors, (const T *)call->params[0].data,
                              (const T *)(bias ? call->params[1].data : NULL), factors_of(call),
                              weight.dim[0], weight.dim[1], c != NULL};
        unsigned blocks = grid_of(call, weight.dim[0] * weight.dim[1] / width, THREADS);
        scale_weights_kernel<T, width><<<blocks, THREADS, 0, stream_of(call)>>>(s);
        return launched(call);
    }));
    struct matmul_operands at = {.a = room + r.weight, .b = b, .bias = bias, .c = c, .d = d,
                                 .factors = factors, .scratch = room};
    return matmul_run(matmul_of(call), call, &at);
}

static enum status linear_scale_backward_params(const struct call *call)
{
    const struct tensor *weight = &call->params[0], *d = call->d_params;
    struct matmul_operands at = {.a = call->x[0].data, .b = call->d_y.data, .d = d[0].data, .alpha = 1,
                                 .scratch = call->workspace};
    TRY(matmul_run(matmul_of(call), call, &at));
    if (has_bias(call)) TRY(columns_sum(call, &call->d_y, (float *)d[1].data, false));
    return with_chunk(weight->dtype, weight->shape.dim[1], [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct unscaled<T> s = {(float *)d[0].data, has_bias(call) ? (float *)d[1].data : NULL,
                                (float *)d[call->param_count - 1].data, (const T *)weight->data,
                                (const T *)call->params[1].data, factors_of(call), weight->shape.dim[1]};
        unsigned blocks = (unsigned)weight->shape.dim[0];
        unscale_gradients_kernel<T, width><<<blocks, THREADS, 0, stream_of(call)>>>(s);
        return launched(call);
    });
}

/* ---- The algorithm ---- */

static enum status linear_scale_run(const struct call *call, const struct kernel_plan *plan)
{
    bool forward = call->phase == PHASE_FORWARD;
    const struct tensor *to = forward ? &call->y : &call->d_x[0];
    (void)plan;
    if (call->phase == PHASE_BACKWARD_PARAMS) return linear_scale_backward_params(call);
    if (shape_count(to->shape) == 0) return OK;
    return multiply(call, forward ? call->x[0].data : call->d_y.data, to->data);
}

static bool linear_scale_make(const struct call *call, struct kernel_plan *plan)
{
    const struct matmul_problem problem = problem_of(call);
    struct matmul *matmul;
    if (matmul_open(&problem, call->device, &matmul) != OK) return false;
    plan->state = matmul;
    plan->workspace = layout_of(call, matmul_scratch(matmul)).bytes;
    return true;
}

static void linear_scale_release(struct kernel_plan *plan)
{
    matmul_close((struct matmul *)plan->state);
}

static const struct algorithm by_library = {
    .name = "cublaslt", .make = linear_scale_make, .run = linear_scale_run, .release = linear_scale_release,
};
static const struct algorithm *const algorithms[] = {&by_library, NULL};

const struct op_code linear_scale_cuda = {
    .plans_together = true,
    .supports = linear_scale_cuda_supports,
    .algorithms = algorithms,
    .forward = kernel_plan_run,
    .backward_data = kernel_plan_run,
    .backward_params = kernel_plan_run,
};
