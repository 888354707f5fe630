/* conv_direct.cu: convolution by plain loops, for what nothing else takes, and for very small images. */
#include "kernels/conv_cuda.cuh"

#define THREADS 256

/* fp32 is summed in double and rounded once, as the CPU sums what is small (kernels/exact.h says why). */
template <class T> struct summed {
    typedef float type;
};
template <> struct summed<float> {
    typedef double type;
};
template <class T> using sum_of = typename summed<T>::type;

/* The output position that meets input position `in` at tap `tap` along axis `i`, or -1. */
__device__ static inline int output_at(const struct conv_problem &g, int i, int in, int tap)
{
    int steps = in + g.pad[i] - tap * g.dilation[i];
    if (steps < 0 || steps % g.stride[i] != 0) return -1;
    int out = steps / g.stride[i];
    return out < g.out[i] ? out : -1;
}

__device__ static inline int64_t pixel(int64_t n, int h, int w, const int size[2])
{
    return (n * size[0] + h) * size[1] + w;
}

/* One output a thread. */
template <class T>
__global__ void forward_kernel(struct conv_problem g, T *y, const T *x, const T *weight, const T *bias,
                               int64_t count)
{
    int channels = g.c / g.groups, filters = g.k / g.groups;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        int k = (int)(i % g.k);
        int64_t rest = i / g.k;
        int q = (int)(rest % g.out[1]), p = (int)(rest / g.out[1] % g.out[0]);
        int64_t n = rest / g.out[1] / g.out[0];
        sum_of<T> sum = bias ? to_float(bias[k]) : 0;
        for (int r = 0; r < g.kernel[0]; r++) {
            int h = p * g.stride[0] - g.pad[0] + r * g.dilation[0];
            if (h < 0 || h >= g.in[0]) continue;
            for (int s = 0; s < g.kernel[1]; s++) {
                int w = q * g.stride[1] - g.pad[1] + s * g.dilation[1];
                if (w < 0 || w >= g.in[1]) continue;
                const T *from = x + pixel(n, h, w, g.in) * g.c + k / filters * channels;
                const T *by = weight + (((int64_t)k * g.kernel[0] + r) * g.kernel[1] + s) * channels;
                for (int c = 0; c < channels; c++) sum += (sum_of<T>)to_float(from[c]) * to_float(by[c]);
            }
        }
        y[i] = from_float<T>((float)sum);
    }
}

/* One input's gradient a thread. */
template <class T>
__global__ void backward_data_kernel(struct conv_problem g, T *d_x, const T *d_y, const T *weight,
                                     int64_t count)
{
    int channels = g.c / g.groups, filters = g.k / g.groups;
    int64_t stride = (int64_t)gridDim.x * blockDim.x, tap_count = (int64_t)g.kernel[0] * g.kernel[1];
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        int channel = (int)(i % g.c), first = channel / channels * filters, c = channel % channels;
        int64_t rest = i / g.c;
        int w = (int)(rest % g.in[1]), h = (int)(rest / g.in[1] % g.in[0]);
        int64_t n = rest / g.in[1] / g.in[0];
        sum_of<T> sum = 0;
        for (int r = 0; r < g.kernel[0]; r++) {
            int p = output_at(g, 0, h, r);
            if (p < 0) continue;
            for (int s = 0; s < g.kernel[1]; s++) {
                int q = output_at(g, 1, w, s);
                if (q < 0) continue;
                const T *from = d_y + pixel(n, p, q, g.out) * g.k + first;
                const T *by = weight + (first * tap_count + r * g.kernel[1] + s) * channels + c;
                for (int k = 0; k < filters; k++)
                    sum += (sum_of<T>)to_float(from[k]) * to_float(by[k * tap_count * channels]);
            }
        }
        d_x[i] = from_float<T>((float)sum);
    }
}

/* One weight's gradient a block: its threads share the output pixels. */
template <class T>
__global__ void backward_params_kernel(struct conv_problem g, float *d_weight, const T *x, const T *d_y)
{
    __shared__ sum_of<T> sums[THREADS];
    int channels = g.c / g.groups, filters = g.k / g.groups;
    int c = (int)(blockIdx.x % channels);
    int64_t rest = blockIdx.x / channels;
    int s = (int)(rest % g.kernel[1]), r = (int)(rest / g.kernel[1] % g.kernel[0]);
    int k = (int)(rest / g.kernel[1] / g.kernel[0]);
    int channel = k / filters * channels + c;
    int64_t pixels = (int64_t)g.n * g.out[0] * g.out[1];
    sum_of<T> sum = 0;
    for (int64_t i = threadIdx.x; i < pixels; i += THREADS) {
        int q = (int)(i % g.out[1]), p = (int)(i / g.out[1] % g.out[0]);
        int64_t n = i / g.out[1] / g.out[0];
        int h = p * g.stride[0] - g.pad[0] + r * g.dilation[0];
        int w = q * g.stride[1] - g.pad[1] + s * g.dilation[1];
        if (h < 0 || h >= g.in[0] || w < 0 || w >= g.in[1]) continue;
        sum += (sum_of<T>)to_float(x[pixel(n, h, w, g.in) * g.c + channel]) * to_float(d_y[i * g.k + k]);
    }
    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) d_weight[blockIdx.x] = (float)sums[0];
}

template <class T> static enum status run_phase(const struct conv_problem *p, const struct call *call)
{
    struct conv_operands at = conv_operands(call);
    cudaStream_t stream = stream_of(call);
    int64_t x_count = (int64_t)p->n * p->in[0] * p->in[1] * p->c;
    int64_t y_count = (int64_t)p->n * p->out[0] * p->out[1] * p->k;
    int64_t weight_count = (int64_t)p->k * (p->c / p->groups) * p->kernel[0] * p->kernel[1];
    if (p->phase == PHASE_FORWARD)
        forward_kernel<<<grid_of(call, y_count, THREADS, 4), THREADS, 0, stream>>>(
            *p, (T *)at.y, (const T *)at.x, (const T *)at.weight, (const T *)at.bias, y_count);
    else if (p->phase == PHASE_BACKWARD_DATA)
        backward_data_kernel<<<grid_of(call, x_count, THREADS, 4), THREADS, 0, stream>>>(
            *p, (T *)at.x, (const T *)at.y, (const T *)at.weight, x_count);
    else
        backward_params_kernel<<<(unsigned)weight_count, THREADS, 0, stream>>>(
            *p, (float *)at.weight, (const T *)at.x, (const T *)at.y);
    return launched(call);
}

static enum status run(const struct conv_way *way, const struct call *call, const struct conv_tools *tools)
{
    (void)tools;
    return with_type(way->problem.dtype,
                     [&](auto type) { return run_phase<decltype(type)>(&way->problem, call); });
}

static int offer(const struct conv_problem *problem, const struct conv_tools *tools, int most,
                 char choices[][CONV_CHOICE])
{
    (void)tools;
    if (most < 1 || !conv_is_small(problem)) return 0;
    snprintf(choices[0], CONV_CHOICE, "direct");
    return 1;
}

static bool make(struct conv_way *way, const struct conv_tools *tools)
{
    (void)way;
    (void)tools;
    return true;
}

static void release(struct conv_way *way)
{
    (void)way;
}

const struct conv_kind conv_by_direct = {
    .name = "direct", .offer = offer, .make = make, .release = release, .run = run,
};
