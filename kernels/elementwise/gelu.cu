#include "kernels/elementwise/elementwise_sums.cuh"

extern "C" {
#include "kernels/elementwise/gelu.h"
}

#define SQRT1_2 0.70710678118654752440f
#define DENSITY 0.39894228040143267794f   /* of the normal distribution at 0: 1 / sqrt(2 pi) */

/* x * P(x), and the derivative: forward and backward write the same bits of y, so that no sum here is left to
 * the compiler that it could contract into one here and not there. */
struct gelu_at {
    float y, slope;
};

/* Not inlined: what the compiler makes of erff depends on what it stands beside. */
__device__ static __noinline__ float normal_distribution(float x)
{
    return 0.5f * __fadd_rn(1, erff(__fmul_rn(x, SQRT1_2)));
}

struct gelu_exact {
    __device__ static gelu_at at(float x)
    {
        float p = normal_distribution(x);
        return {__fmul_rn(x, p), p + x * (DENSITY * expf(-0.5f * x * x))};
    }
};

/* P within 1e-7, which is enough for 16 bits (Abramowitz, Stegun, Handbook of Mathematical Functions,
 * 7.1.26). */
struct gelu_half {
    __device__ static gelu_at at(float x)
    {
        float bell = __expf(__fmul_rn(-0.5f * x, x));
        float t = __fdividef(1, fmaf(fabsf(x), 0.3275911f * SQRT1_2, 1));
        float p = fmaf(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
        p = fmaf(p, t, 0.5f * 1.421413741f);
        p = fmaf(p, t, 0.5f * -0.284496736f);
        p = __fmul_rn(__fmul_rn(fmaf(p, t, 0.5f * 0.254829592f), t), bell);
        p = x < 0 ? p : __fsub_rn(1, p);
        return {__fmul_rn(x, p), fmaf(x * DENSITY, bell, p)};
    }
};

struct gelu_tanh {
    __device__ static gelu_at at(float x)
    {
        float cubic = __fmul_rn(__fmul_rn((float)GELU_CUBIC * x, x), x);
        float p = 0.5f * __fadd_rn(1, tanhf(__fmul_rn((float)GELU_SCALE, __fadd_rn(x, cubic))));
        float inner = 2 * (float)GELU_SCALE * (1 + 3 * (float)GELU_CUBIC * x * x);
        return {__fmul_rn(x, p), p + x * p * (1 - p) * inner};
    }
};

template <class G> struct gelu_output {
    __device__ float operator()(float x) const { return G::at(x).y; }
};

template <class G> struct gelu_gradient {
    __device__ float operator()(float d_y, float x) const { return d_y * G::at(x).slope; }
    __device__ float operator()(float d_y, float x, float *y) const
    {
        gelu_at g = G::at(x);
        *y = g.y;
        return d_y * g.slope;
    }
};

/* Calls work with the function of the settings and the storage type. */
template <class Work> static enum status with_gelu(const struct call *call, Work work)
{
    if (((const struct gelu *)call->settings)->approximate == GELU_TANH) return work(gelu_tanh());
    return call->x[0].dtype == F32 ? work(gelu_exact()) : work(gelu_half());
}

static enum status gelu_forward(const struct call *call)
{
    return with_gelu(call, [&](auto g) {
        return map_tensor(call, &call->y, &call->x[0], gelu_output<decltype(g)>());
    });
}

static enum status gelu_backward(const struct call *call)
{
    const struct tensor *d_x = &call->d_x[0], *again = call_operand(call, OPERAND_Y_RECOMPUTED);
    return with_gelu(call, [&](auto g) {
        using G = decltype(g);
        if (again && !d_x->data) return map_tensor(call, again, &call->x[0], gelu_output<G>());
        if (!d_x->data) return OK;
        if (again) return map_with_sums<true>(call, &call->x[0], gelu_gradient<G>());
        if (call_operand(call, OPERAND_D_X_SUMS)) return map_with_sums(call, &call->x[0], gelu_gradient<G>());
        return map_tensors(call, d_x, &call->d_y, &call->x[0], gelu_gradient<G>());
    });
}

const struct op_code gelu_cuda = {
    .supports = call_sums_gradient,
    .workspace = map_sums_workspace,
    .forward = gelu_forward,
    .backward = gelu_backward,
};
