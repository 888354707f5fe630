/* attention.cu: which kernels compute a call of attention: those of attention_tiles.cu, attention_windows.cu
 * and attention_floats.cu, or these, for any type, size of heads and window: a warp has a token and goes
 * through the others, 32 at a time, with one in each lane. */
#include "kernels/attention/attention_library.cuh"
#include "kernels/support/block.cuh"
#include "kernels/support/columns.cuh"

extern "C" {
#include "base/memory.h"
}

namespace attention_parts {

constexpr int warps = 4, depth = ATTENTION_SIZE_MAX / 32;

/* One head of a group. */
template <class T> struct group_view {
    const tensors<T> &t;
    const layout &l;
    int64_t group;
    int head;
    __device__ const T *part(int which, const token &of) const
    {
        return t.x + ((of.pixel * 3 + which) * l.heads + head) * l.size;
    }
    __device__ int64_t y_at(const token &of) const { return (of.y_pixel * l.heads + head) * l.size; }
    __device__ token at(int index) const { return token_of(l, group, index); }
};

template <class T> __device__ static inline float dot(const T *a, const T *b, int count)
{
    float sum = 0;
    for (int i = 0; i < count; i++) sum = fmaf(to_float(a[i]), to_float(b[i]), sum);
    return sum;
}

/* In units of log(2); -inf if there is no such pair. */
template <class T>
__device__ static inline float score_of(const group_view<T> &g, int query, int key)
{
    if (query >= g.l.tokens || key >= g.l.tokens) return -INFINITY;
    token q = g.at(query), k = g.at(key);
    float score = dot(g.part(0, q), g.part(1, k), g.l.size) * g.l.scale;
    if (g.l.window == 0) return score;
    float apart = q.region != k.region ? ATTENTION_APART : 0;
    return score + (g.t.table[bias_row(g.l.window, query, key) * g.l.heads + g.head] + apart) * log2_e;
}

/* p (d_y . v - delta) of a pair, where d_y is there; and p. */
struct pair_gradient {
    float p, d;
};

template <class T>
__device__ static inline pair_gradient gradient_of(const group_view<T> &g, int query, int key)
{
    float score = score_of(g, query, key);
    if (score == -INFINITY) return {0, 0};
    token q = g.at(query);
    float p = exp2f(score - g.t.lse[g.head * g.l.pixels + q.pixel] * log2_e);
    if (q.y_pixel < 0) return {0, 0};
    const T *d_y = g.t.d_y + g.y_at(q);
    float d = dot(d_y, g.part(2, g.at(key)), g.l.size) - dot(d_y, g.t.y + g.y_at(q), g.l.size);
    return {p, p * d};
}

/* A lane has channels lane, lane + 32, ...; sums += factor * row. */
template <class T>
__device__ static inline void add_row(float (&sums)[depth], const T *row, float factor, int size)
{
#pragma unroll
    for (int i = 0; i < depth; i++) {
        int c = threadIdx.x % 32 + 32 * i;
        if (c < size) sums[i] = fmaf(factor, to_float(row[c]), sums[i]);
    }
}

template <class T>
__device__ static inline void store_sums(T *to, const float (&sums)[depth], float factor, int size)
{
#pragma unroll
    for (int i = 0; i < depth; i++) {
        int c = threadIdx.x % 32 + 32 * i;
        if (c < size) to[c] = from_float<T>(sums[i] * factor);
    }
}

/* Calls work(group, index) for each token of each head and group, one to a warp. */
template <class T, class Work>
__device__ static inline void each_token(const tensors<T> &t, const layout &l, Work work)
{
    int64_t count = l.groups * l.heads * l.tokens, step = (int64_t)gridDim.x * warps;
    for (int64_t i = (int64_t)blockIdx.x * warps + threadIdx.x / 32; i < count; i += step) {
        int64_t rest = i / l.tokens;
        group_view<T> g = {t, l, rest / l.heads, (int)(rest % l.heads)};
        work(g, (int)(i % l.tokens));
    }
}

template <class T>
__global__ void __launch_bounds__(32 * warps)
attention_any_kernel(const __grid_constant__ tensors<T> t, const __grid_constant__ layout l)
{
    each_token(t, l, [&](const group_view<T> &g, int query) {
        float max = -INFINITY, sum = 0, out[depth] = {};
        for (int first = 0; first < l.tokens; first += 32) {
            float score = score_of(g, query, first + (int)(threadIdx.x % 32));
            float all = fmaxf(max, warp_reduce(score, [](float a, float b) { return fmaxf(a, b); }));
            float factor = exp2f(max - all), p = exp2f(score - all);
            sum = fmaf(sum, factor, warp_reduce(p, [](float a, float b) { return a + b; }));
            max = all;
            for (int i = 0; i < depth; i++) out[i] *= factor;
            for (int i = 0; i < 32 && first + i < l.tokens; i++)
                add_row(out, g.part(2, g.at(first + i)), __shfl_sync(0xffffffffu, p, i), l.size);
        }
        token of = g.at(query);
        if (of.y_pixel >= 0) store_sums(t.to + g.y_at(of), out, 1 / sum, l.size);
        if (t.lse && threadIdx.x % 32 == 0)
            t.lse[g.head * l.pixels + of.pixel] = (max + log2f(sum)) / log2_e;
    });
}

template <class T>
__global__ void __launch_bounds__(32 * warps)
attention_any_backward_kernel(const __grid_constant__ tensors<T> t, const __grid_constant__ layout l)
{
    each_token(t, l, [&](const group_view<T> &g, int own) {
        float q[depth] = {}, k[depth] = {}, v[depth] = {};
        for (int first = 0; first < l.tokens; first += 32) {
            int other = first + (int)(threadIdx.x % 32);
            pair_gradient as_query = gradient_of(g, own, other), as_key = gradient_of(g, other, own);
            for (int i = 0; i < 32 && first + i < l.tokens; i++) {
                token of = g.at(first + i);
                add_row(q, g.part(1, of), __shfl_sync(0xffffffffu, as_query.d, i), l.size);
                add_row(k, g.part(0, of), __shfl_sync(0xffffffffu, as_key.d, i), l.size);
                float p = __shfl_sync(0xffffffffu, as_key.p, i);
                if (of.y_pixel >= 0) add_row(v, t.d_y + g.y_at(of), p, l.size);
            }
        }
        T *to = t.to + (g.part(0, g.at(own)) - t.x);
        store_sums(to, q, l.scale / log2_e, l.size);
        store_sums(to + l.heads * l.size, k, l.scale / log2_e, l.size);
        store_sums(to + 2 * l.heads * l.size, v, 1, l.size);
    });
}

constexpr int table_threads = 128;

/* A block has one row of the table and one head: the sum over all pairs of tokens so far apart. */
template <class T>
__global__ void __launch_bounds__(table_threads)
attention_any_table_kernel(const __grid_constant__ tensors<T> t, const __grid_constant__ layout l,
                           float *d_table)
{
    int reach = 2 * l.window - 1, row = blockIdx.x / l.heads, head = blockIdx.x % l.heads;
    int down = row / reach - l.window + 1, right = row % reach - l.window + 1;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < l.groups * l.tokens; i += table_threads) {
        int key = (int)(i % l.tokens), h = key / l.window + down, w = key % l.window + right;
        group_view<T> g = {t, l, i / l.tokens, head};
        if (h >= 0 && h < l.window && w >= 0 && w < l.window)
            sum += gradient_of(g, h * l.window + w, key).d;
    }
    sum = block_sum<table_threads>(sum);
    if (threadIdx.x == 0) d_table[row * l.heads + head] = sum;
}

/* Pairs of tokens of a thread, of which it adds up the gradients over windows; the parts of that sum. */
constexpr int table_pairs = 10, table_parts = 512;

static bool table_fits(const layout &l)
{
    return l.tokens * l.tokens <= table_pairs * 2 * table_threads && l.size <= 64;
}

static size_t table_shared(const layout &l)
{
    int factors = 4 * l.tokens * (l.size + 1) + 3 * l.tokens, pairs = l.tokens * l.tokens;
    return (size_t)(factors > pairs ? factors : pairs) * sizeof(float);
}

static size_t table_workspace(const struct call *call, const layout &l)
{
    if (call->param_count == 0 || !table_fits(l)) return 0;
    return (size_t)(table_parts * (2 * l.window - 1) * (2 * l.window - 1) * l.heads) * sizeof(float);
}

/* A block has one head and some windows, whose factors lie in shared memory one after another. */
template <class T>
__global__ void __launch_bounds__(2 * table_threads)
attention_table_kernel(const __grid_constant__ tensors<T> t, const __grid_constant__ layout l, float *parts)
{
    extern __shared__ float memory[];
    int pitch = l.size + 1, length = l.tokens * pitch, pairs = l.tokens * l.tokens, head = blockIdx.y;
    float *q = memory, *k = q + length, *v = k + length, *d_y = v + length;
    float *lse = d_y + length, *delta = lse + l.tokens, *region = delta + l.tokens, sums[table_pairs] = {};
    for (int64_t group = blockIdx.x; group < l.groups; group += gridDim.x) {
        group_view<T> g = {t, l, group, head};
        __syncthreads();
        for (int i = threadIdx.x; i < l.tokens * l.size; i += blockDim.x) {
            int index = i / l.size, c = i % l.size, to = index * pitch + c;
            token of = g.at(index);
            q[to] = to_float(g.part(0, of)[c]);
            k[to] = to_float(g.part(1, of)[c]);
            v[to] = to_float(g.part(2, of)[c]);
            d_y[to] = of.y_pixel < 0 ? 0 : to_float(t.d_y[g.y_at(of) + c]);
        }
        for (int index = threadIdx.x; index < l.tokens; index += blockDim.x) {
            token of = g.at(index);
            lse[index] = t.lse[head * l.pixels + of.pixel] * log2_e;
            delta[index] = of.y_pixel < 0 ? 0 : dot(t.d_y + g.y_at(of), t.y + g.y_at(of), l.size);
            region[index] = of.region;
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < table_pairs; j++) {
            int pair = threadIdx.x + j * blockDim.x, query = pair / l.tokens, key = pair % l.tokens;
            if (pair >= pairs) continue;
            float score = dot(q + query * pitch, k + key * pitch, l.size) * l.scale;
            float d = dot(d_y + query * pitch, v + key * pitch, l.size) - delta[query];
            float apart = region[query] != region[key] ? ATTENTION_APART : 0;
            score += (t.table[bias_row(l.window, query, key) * l.heads + head] + apart) * log2_e;
            sums[j] = fmaf(exp2f(score - lse[query]), d, sums[j]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < table_pairs; j++)
        if (threadIdx.x + j * blockDim.x < pairs) memory[threadIdx.x + j * blockDim.x] = sums[j];
    __syncthreads();
    int reach = 2 * l.window - 1;
    for (int row = threadIdx.x; row < reach * reach; row += blockDim.x) {
        int down = row / reach - l.window + 1, right = row % reach - l.window + 1;
        float sum = 0;
        for (int key = 0; key < l.tokens; key++) {
            int h = key / l.window + down, w = key % l.window + right;
            if (h >= 0 && h < l.window && w >= 0 && w < l.window)
                sum += memory[(h * l.window + w) * l.tokens + key];
        }
        parts[((int64_t)blockIdx.x * reach * reach + row) * l.heads + head] = sum;
    }
}

template <class T>
static enum status table_backward(const struct call *call, const tensors<T> &t, const layout &l)
{
    int64_t count = shape_count(call->params[0].shape);
    float *d_table = (float *)call->d_params[0].data;
    if (!table_fits(l)) {
        attention_any_table_kernel<<<(unsigned)count, table_threads, 0, stream_of(call)>>>(t, l, d_table);
        return launched(call);
    }
    unsigned parts = (unsigned)(l.groups < table_parts ? l.groups : table_parts);
    float *sums = (float *)call->workspace;
    TRY(open_shared(call, attention_table_kernel<T>, table_shared(l)));
    attention_table_kernel<<<dim3(parts, l.heads), 2 * table_threads, table_shared(l), stream_of(call)>>>(
        t, l, sums);
    TRY(launched(call));
    return columns_finish(call, {sums, (int)parts, 1, (int)count}, d_table);
}

static bool has_tensor_cores(const struct call *call)
{
    return !call->device || cuda_facts(call->device)->capability >= 80;
}

static enum status any_forward(const struct call *call, const layout &l)
{
    if (has_tensor_cores(call) && floats_take(call, l)) return floats_run(call, l);
    return with_type(call->x[0].dtype, [&](auto type) {
        using T = decltype(type);
        unsigned blocks = grid_of(call, l.groups * l.heads * l.tokens * 32, 32 * warps, 4);
        attention_any_kernel<<<blocks, 32 * warps, 0, stream_of(call)>>>(tensors_of<T>(call), l);
        return launched(call);
    });
}

static enum status any_backward(const struct call *call, const layout &l)
{
    return with_type(call->x[0].dtype, [&](auto type) {
        using T = decltype(type);
        unsigned blocks = grid_of(call, l.groups * l.heads * l.tokens * 32, 32 * warps, 4);
        tensors<T> t = tensors_of<T>(call);
        if (t.to && has_tensor_cores(call) && floats_take(call, l)) TRY(floats_run(call, l));
        else if (t.to) attention_any_backward_kernel<<<blocks, 32 * warps, 0, stream_of(call)>>>(t, l);
        TRY(launched(call));
        return t.table && call->d_params[0].data ? table_backward(call, t, l) : OK;
    });
}

}

using namespace attention_parts;

/* ---- Kernels of our own ---- */

static size_t own_workspace(const struct call *call, enum phase phase)
{
    layout l = layout_of(call);
    if (phase != PHASE_BACKWARD) return 0;
    size_t table = table_workspace(call, l), windows = windows_take(call, l) ? windows_workspace(call, l) : 0;
    return table > windows ? table : windows;
}

static enum status own_forward(const struct call *call)
{
    layout l = layout_of(call);
    if (has_tensor_cores(call) && windows_take(call, l)) return windows_forward(call, l);
    if (has_tensor_cores(call) && tiles_take(call, l)) return tiles_forward(call, l);
    return any_forward(call, l);
}

static enum status own_backward(const struct call *call)
{
    layout l = layout_of(call);
    if (has_tensor_cores(call) && windows_take(call, l)) return windows_backward(call, l);
    if (!call->d_x[0].data && call->param_count == 0) return OK;
    if (has_tensor_cores(call) && tiles_take(call, l)) return tiles_backward(call, l);
    return any_backward(call, l);
}

/* ---- Kernel plans ---- */

static enum status own_run(const struct call *call, const struct kernel_plan *plan)
{
    (void)plan;
    return call->phase == PHASE_BACKWARD ? own_backward(call) : own_forward(call);
}

static bool own_make(const struct call *call, struct kernel_plan *plan)
{
    plan->workspace = own_workspace(call, call->phase);
    return true;
}

/* The library is worth timing where tokens would pass in parts; its sums have another order than ours. */
static bool asks_library(const struct call *call)
{
    const layout l = layout_of(call);
    if (!library_takes(call, l) || shape_count(call->y.shape) == 0) return false;
    if (call->variant || call->deterministic) return call->variant;
    return !tiles_take(call, l) || !tiles_hold(call, l, call->phase == PHASE_BACKWARD);
}

/* Bytes of what lies between products in fp32, and of what the library may need itself. */
static size_t library_bound(const layout &l)
{
    return (size_t)l.heads * l.pixels * (l.size + 2) * sizeof(float) + ((size_t)64 << 20);
}

static const struct algorithm by_own = {.name = "own", .make = own_make, .run = own_run};
static const struct algorithm *const algorithms[] = {&by_own, &by_library, NULL};

static enum status attention_choose(const struct op_code *code, const struct call *call,
                                    struct kernel_plan **made)
{
    struct call planned = *call;
    cudnnHandle_t handle;
    bool asks = asks_library(call);
    if (!asks || !call->device) {
        *made = algorithm_plan(code->algorithms, call, by_own.name);
        if (asks && call->phase == PHASE_BACKWARD) (*made)->workspace = library_bound(layout_of(call));
        return OK;
    }
    TRY(cuda_cudnn_borrow(call->device, &handle));
    planned.library = handle;
    enum status status = autotune(code->algorithms, &planned, library_bound(layout_of(call)), made);
    cuda_cudnn_return(call->device, handle);
    return status;
}

static enum status attention_run(const struct call *call)
{
    if (shape_count(call->phase == PHASE_BACKWARD ? call->d_y.shape : call->y.shape) == 0) return OK;
    if (call->kernel_plan->algorithm == &by_library && call->phase == PHASE_BACKWARD && !call->d_x[0].data)
        return OK;
    return kernel_plan_run(call);
}

static const char *const variants[] = {"own", "cudnn", NULL};

const struct op_code attention_cuda = {
    .plans_together = true,
    .supports = attention_cuda_supports,
    .algorithms = algorithms,
    .choose = attention_choose,
    .variants = variants,
    .forward = attention_run,
    .backward = attention_run,
    .recompute = attention_run,
};
