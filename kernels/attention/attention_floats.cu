/* attention_floats.cu: attention in fp32 by the tensor cores' tf32 products (mma.m16n8k8). Factors are
 * rounded to tf32; or, where products are to be those of fp32, divided into two such numbers, whose three
 * larger products are added up. A block has 64 queries or keys of a head of a group, a warp 16 of them; the
 * others pass by in shared memory, `part` tokens at a time. */
#include "kernels/attention/attention_tiles.cuh"
#include "kernels/support/tf32.cuh"

namespace attention_parts {

constexpr int part = 64, warps = 4, threads = 32 * warps;

/* Numbers from row to row in shared memory: two neighbours of eight rows, and one of each second row, are in
 * few banks. */
template <int size> __host__ __device__ constexpr int row_floats() { return size + 8; }

__device__ static inline uint32_t tf32_of(float value)
{
    return __float_as_uint(factor_from_float<float>(value));
}

/* d += a b. */
template <bool exact>
__device__ static inline void multiply_floats(float (&d)[4], const float (&a)[4], float b0, float b1)
{
    uint32_t high[4], low[4], b_high[2] = {tf32_of(b0), tf32_of(b1)};
#pragma unroll
    for (int i = 0; i < 4; i++) high[i] = tf32_of(a[i]);
    if (exact) {
#pragma unroll
        for (int i = 0; i < 4; i++) low[i] = tf32_of(a[i] - __uint_as_float(high[i]));
        multiply(d, low, b_high[0], b_high[1], float());
        multiply(d, high, tf32_of(b0 - __uint_as_float(b_high[0])),
                 tf32_of(b1 - __uint_as_float(b_high[1])), float());
    }
    multiply(d, high, b_high[0], b_high[1], float());
}

/* A token's place in its window, with its region: differences of places are rows of the bias table. */
__device__ static inline int place_of(const layout &l, int index, int region)
{
    return l.window == 0 ? 0 : index / l.window * (2 * l.window - 1) + index % l.window + (region << 24);
}

/* In units of log(2). */
__device__ static inline float bias_of(const float *table, const layout &l, int head, int query, int key)
{
    if (l.window == 0) return 0;
    int row = (query & 0xffffff) - (key & 0xffffff) + (l.window - 1) * 2 * l.window;
    float apart = query >> 24 != key >> 24 ? ATTENTION_APART : 0;
    return (table[row * l.heads + head] + apart) * log2_e;
}

/* A row of a matrix: which of x's parts, or d_y; NULL: it is 0. */
enum matrix { Q, K, V, D_Y };
__device__ static inline const float *row_of(const tensors<float> &t, const layout &l, const token &of,
                                             bool here, int head, matrix which)
{
    if (!here || (which == D_Y && of.y_pixel < 0)) return NULL;
    if (which == D_Y) return t.d_y + (of.y_pixel * l.heads + head) * l.size;
    return t.x + ((of.pixel * 3 + which) * l.heads + head) * l.size;
}

/* A lane's own two rows of 16, as left factors over the channels: of each eight, it has two neighbours, which
 * are k = lane % 4 and that plus 4. */
template <int size> struct own_factors {
    float at[size / 8][4];
    __device__ void load(const float *first, const float *second)
    {
        int lane = threadIdx.x % 4;
#pragma unroll
        for (int k = 0; k < size / 8; k++) {
            float2 a = first ? *(const float2 *)(first + 8 * k + 2 * lane) : float2{};
            float2 b = second ? *(const float2 *)(second + 8 * k + 2 * lane) : float2{};
            at[k][0] = a.x, at[k][1] = b.x, at[k][2] = a.y, at[k][3] = b.y;
        }
    }
};

/* d += own rows', eight rows from `row` on being columns. */
template <int size, bool exact>
__device__ static inline void product_of(float (&d)[4], const own_factors<size> &own, const float *rows,
                                         int row)
{
    const float *from = rows + (row + threadIdx.x % 32 / 4) * row_floats<size>() + threadIdx.x % 4 * 2;
#pragma unroll
    for (int k = 0; k < size / 8; k++) {
        float2 b = *(const float2 *)(from + 8 * k);
        multiply_floats<exact>(d, own.at[k], b.x, b.y);
    }
}

/* sums += p rows, p being a product of eight columns, the rows from `row` on. */
template <int size, bool exact>
__device__ static inline void collect_floats(float (&sums)[size / 8][4], const float (&p)[4],
                                             const float *rows, int row)
{
    const float *from = rows + (row + threadIdx.x % 4 * 2) * row_floats<size>() + threadIdx.x % 32 / 4;
    const float a[4] = {p[0], p[2], p[1], p[3]};
#pragma unroll
    for (int n = 0; n < size / 8; n++)
        multiply_floats<exact>(sums[n], a, from[8 * n], from[row_floats<size>() + 8 * n]);
}

/* Tokens that pass. */
template <int size> struct passing {
    float first[part * row_floats<size>()], second[part * row_floats<size>()];
    float lse[part], delta[part];
    int place[part];
};

/* Two threads have a token. Scores of those that do not exist are -inf by lse or place. */
template <int size>
__device__ static inline void pass_on(passing<size> &room, const tensors<float> &t, const layout &l,
                                      int64_t group, int head, int from, matrix first, matrix second)
{
    int row = threadIdx.x / 2, half = threadIdx.x % 2;
    bool here = from + row < l.tokens;
    token of = token_of(l, group, here ? from + row : 0);
    const float *a = row_of(t, l, of, here, head, first), *b = row_of(t, l, of, here, head, second);
    float4 *to_a = (float4 *)(room.first + row * row_floats<size>());
    float4 *to_b = (float4 *)(room.second + row * row_floats<size>());
    for (int i = half; i < size / 4; i += 2) {
        to_a[i] = a ? ((const float4 *)a)[i] : float4{};
        to_b[i] = b ? ((const float4 *)b)[i] : float4{};
    }
    if (half == 0) room.place[row] = place_of(l, here ? from + row : 0, of.region);
    if (second != D_Y) return;
    float sum = 0;
    const float *y = t.y + (of.y_pixel * l.heads + head) * size;
    for (int i = half; b && i < size; i += 2) sum = fmaf(b[i], y[i], sum);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (half != 0) return;
    room.delta[row] = sum;
    room.lse[row] = here ? t.lse[head * l.pixels + of.pixel] * log2_e : INFINITY;
}

/* A lane's own two rows. */
struct own_tokens {
    token of[2];
    bool here[2];
    int place[2];
    __device__ own_tokens(const layout &l, int64_t group, int first)
    {
        for (int half = 0; half < 2; half++) {
            int row = first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
            here[half] = row < l.tokens;
            of[half] = token_of(l, group, here[half] ? row : 0);
            place[half] = place_of(l, here[half] ? row : 0, of[half].region);
        }
    }
};

template <int size>
__device__ static inline void store_floats(float *to, const float (&d)[size / 8][4], int half, float factor)
{
#pragma unroll
    for (int n = 0; n < size / 8; n++)
        *(float2 *)(to + 8 * n + threadIdx.x % 4 * 2) =
            make_float2(d[n][2 * half] * factor, d[n][2 * half + 1] * factor);
}

template <int size, bool exact>
__global__ void __launch_bounds__(threads)
attention_floats_kernel(const __grid_constant__ tensors<float> t, const __grid_constant__ layout l)
{
    extern __shared__ float4 memory[];
    passing<size> &room = *(passing<size> *)memory;
    int64_t group = blockIdx.x / l.heads;
    int head = blockIdx.x % l.heads;
    own_tokens own(l, group, blockIdx.y * part);
    own_factors<size> q;
    q.load(row_of(t, l, own.of[0], own.here[0], head, Q), row_of(t, l, own.of[1], own.here[1], head, Q));
    float out[1][size / 8][4], factor[2];
    softmax rows = {{-INFINITY, -INFINITY}, {0, 0}};
    clear<size, 1>(out);
    for (int first = 0; first < l.tokens; first += part) {
        __syncthreads();
        pass_on<size>(room, t, l, group, head, first, K, V);
        __syncthreads();
        float s[part / 8][4] = {};
#pragma unroll
        for (int n = 0; n < part / 8; n++) {
            product_of<size, exact>(s[n], q, room.first, 8 * n);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int key = 8 * n + threadIdx.x % 4 * 2 + e % 2;
                float bias = bias_of(t.table, l, head, own.place[e / 2], room.place[key]);
                s[n][e] = first + key < l.tokens ? fmaf(s[n][e], l.scale, bias) : -INFINITY;
            }
        }
        exponentials<part / 8>(s, 1, rows, factor);
#pragma unroll
        for (int n = 0; n < size / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) out[0][n][e] *= factor[e / 2];
#pragma unroll
        for (int n = 0; n < part / 8; n++) collect_floats<size, exact>(out[0], s[n], room.second, 8 * n);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = quad_sum(rows.sum[half]);
        const token &of = own.of[half];
        if (!own.here[half]) continue;
        if (of.y_pixel >= 0)
            store_floats<size>(t.to + (of.y_pixel * l.heads + head) * size, out[0], half, 1 / sum);
        if (t.lse && threadIdx.x % 4 == 0)
            t.lse[head * l.pixels + of.pixel] = (rows.max[half] + log2f(sum)) / log2_e;
    }
}

/* State of a lane's own queries, besides factors. */
struct own_sums {
    float lse[2], delta[2];
    __device__ own_sums(const tensors<float> &t, const layout &l, const own_tokens &own, int head)
    {
        for (int half = 0; half < 2; half++) {
            const float *d_y = row_of(t, l, own.of[half], own.here[half], head, D_Y);
            const float *y = t.y + (own.of[half].y_pixel * l.heads + head) * l.size;
            float sum = 0;
            for (int i = threadIdx.x % 4; d_y && i < l.size; i += 4) sum = fmaf(d_y[i], y[i], sum);
            delta[half] = quad_sum(sum);
            lse[half] = own.here[half] ? t.lse[head * l.pixels + own.of[half].pixel] * log2_e : INFINITY;
        }
    }
};

/* Even blocks have keys, and queries with d_y pass; odd ones have queries, and keys with values pass. */
template <int size, bool exact>
__global__ void __launch_bounds__(threads)
attention_floats_backward_kernel(const __grid_constant__ tensors<float> t, const __grid_constant__ layout l)
{
    extern __shared__ float4 memory[];
    passing<size> &room = *(passing<size> *)memory;
    int64_t group = blockIdx.x / l.heads;
    int head = blockIdx.x % l.heads;
    bool of_keys = blockIdx.y % 2 == 0;
    own_tokens own(l, group, blockIdx.y / 2 * part);
    own_sums known(t, l, own, head);
    own_factors<size> first, second;
    matrix own_first = of_keys ? K : Q, own_second = of_keys ? V : D_Y;
    first.load(row_of(t, l, own.of[0], own.here[0], head, own_first),
               row_of(t, l, own.of[1], own.here[1], head, own_first));
    second.load(row_of(t, l, own.of[0], own.here[0], head, own_second),
                row_of(t, l, own.of[1], own.here[1], head, own_second));
    float sums[1][size / 8][4], values[1][size / 8][4];
    clear<size, 1>(sums);
    clear<size, 1>(values);
    for (int from = 0; from < l.tokens; from += part) {
        __syncthreads();
        pass_on<size>(room, t, l, group, head, from, of_keys ? Q : K, of_keys ? D_Y : V);
        __syncthreads();
#pragma unroll 1
        for (int column = 0; column < part; column += 8) {
            float s[4] = {}, d[4] = {};
            product_of<size, exact>(s, first, room.first, column);
            product_of<size, exact>(d, second, room.second, column);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int at = column + threadIdx.x % 4 * 2 + e % 2, half = e / 2;
                int query = of_keys ? room.place[at] : own.place[half];
                int key = of_keys ? own.place[half] : room.place[at];
                bool here = of_keys ? own.here[half] && from + at < l.tokens : from + at < l.tokens;
                float lse = of_keys ? room.lse[at] : known.lse[half];
                float delta = of_keys ? room.delta[at] : known.delta[half];
                float bias = here ? bias_of(t.table, l, head, query, key) : -INFINITY;
                s[e] = exp2_of(fmaf(s[e], l.scale, bias) - lse);
                d[e] = s[e] * (d[e] - delta);
            }
            collect_floats<size, exact>(sums[0], d, room.first, column);
            if (of_keys) collect_floats<size, exact>(values[0], s, room.second, column);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (!own.here[half]) continue;
        float *to = t.to + (row_of(t, l, own.of[half], true, head, own_first) - t.x);
        store_floats<size>(to, sums[0], half, l.scale / log2_e);
        if (of_keys) store_floats<size>(to + l.heads * size, values[0], half, 1);
    }
}

bool floats_take(const struct call *call, const layout &l)
{
    bool sizes = l.size == 32 || l.size == 64 || l.size == 80;
    return call->x[0].dtype == F32 && sizes && l.window <= 1024;
}

/* Calls work(size, exact). */
template <class Work> static enum status with_floats(const struct call *call, const layout &l, Work work)
{
    auto with = [&](auto size) {
        return call->tf32 ? work(size, constant<0>()) : work(size, constant<1>());
    };
    if (l.size == 32) return with(constant<32>());
    return l.size == 64 ? with(constant<64>()) : with(constant<80>());
}

enum status floats_run(const struct call *call, const layout &l)
{
    bool backward = call->phase == PHASE_BACKWARD;
    return with_floats(call, l, [&](auto wide, auto precision) {
        constexpr int size = decltype(wide)::number;
        constexpr bool exact = decltype(precision)::number;
        auto launch = [&](auto kernel, unsigned high) {
            dim3 grid((unsigned)(l.groups * l.heads), high * (unsigned)div_up(l.tokens, part));
            TRY(open_shared(call, kernel, sizeof(passing<size>)));
            kernel<<<grid, threads, sizeof(passing<size>), stream_of(call)>>>(tensors_of<float>(call), l);
            return launched(call);
        };
        if (backward) return launch(attention_floats_backward_kernel<size, exact>, 2);
        return launch(attention_floats_kernel<size, exact>, 1);
    });
}

}
