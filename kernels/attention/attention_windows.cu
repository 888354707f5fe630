/* attention_windows.cu: attention in windows of at most 64 tokens, heads of 32 channels, in 16 bits. A block
 * of four warps has one head of every nth window; while it computes one, the next is on its way. A warp has
 * 16 queries, whose bias stays in registers. Backward, p and d_score go through shared memory from the warps
 * of queries to those of keys. The bias's gradient is added up in registers over all windows of a block; the
 * sums of blocks are added up in order. */
#include "kernels/attention/attention_tiles.cuh"
#include "kernels/support/columns.cuh"

namespace attention_parts {

constexpr int extent = 64, wide = 32;     /* tokens and channels */
constexpr int warps = 4, threads = 32 * warps, tiles = extent / 8;

struct window_rows {
    int pixel[extent], y_pixel[extent], region[extent];
    float lse[extent];
};

template <int matrices> struct window_room {
    uint4 matrix[2][matrices][extent * pitch<wide>()];
    window_rows rows[2];
};

/* The rows and columns in a window of a thread's tokens, of which it copies a quarter. */
constexpr int own = extent / (threads / 4);
struct own_tokens {
    int h[own], w[own];
    __device__ own_tokens(const layout &l)
    {
        for (int i = 0; i < own; i++) {
            int row = threadIdx.x / 4 + i * (threads / 4);
            h[i] = row / l.window, w[i] = row % l.window;
        }
    }
};

/* Queues copies of a window's q, k, v and, backward, d_y, y and lse. */
template <class T, int matrices>
__device__ static inline void fetch_window(window_room<matrices> &room, int stage, const tensors<T> &t,
                                           const layout &l, int64_t group, int head, const own_tokens &tokens)
{
    int unit = threadIdx.x % 4;
    corner from = corner_of(l, group);
#pragma unroll
    for (int i = 0; i < own; i++) {
        int row = threadIdx.x / 4 + i * (threads / 4);
        bool here = row < l.tokens;
        token at = token_at(l, from, here ? tokens.h[i] : 0, here ? tokens.w[i] : 0);
        const T *x = t.x + at.pixel * 3 * l.heads * wide + head * wide + unit * 8;
#pragma unroll
        for (int part = 0; part < 3; part++)
            copy_unit(&room.matrix[stage][part][unit_of<wide>(row, unit)], x + part * l.heads * wide, here);
        if (matrices == 5) {
            bool in_y = here && at.y_pixel >= 0;
            int64_t place = ((in_y ? at.y_pixel : 0) * l.heads + head) * wide + unit * 8;
            copy_unit(&room.matrix[stage][3][unit_of<wide>(row, unit)], t.d_y + place, in_y);
            copy_unit(&room.matrix[stage][matrices - 1][unit_of<wide>(row, unit)], t.y + place, in_y);
        }
        if (unit != 0) continue;
        if (matrices == 5 && here) copy_word(&room.rows[stage].lse[row], t.lse + head * l.pixels + at.pixel);
        room.rows[stage].pixel[row] = (int)at.pixel;
        room.rows[stage].y_pixel[row] = here ? (int)at.y_pixel : -1;
        room.rows[stage].region[row] = at.region;
    }
}

/* The bias of a warp's 16 queries in units of log(2); -inf behind the last key, 0 behind the last query. */
__device__ static inline void load_bias(float (&bias)[tiles][4], const float *table, const layout &l,
                                        int head)
{
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < tiles; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int query = first + e / 2 * 8, key = 8 * n + lane % 4 * 2 + e % 2;
            bool here = query < l.tokens && key < l.tokens;
            float value = here ? table[bias_row(l.window, query, key) * l.heads + head] * log2_e : 0;
            bias[n][e] = key < l.tokens ? value : -INFINITY;
        }
}

/* True if the window has tokens of several regions: those of its first and last differ. */
__device__ static inline bool is_divided(const window_rows &rows, const layout &l)
{
    return rows.region[0] != rows.region[l.tokens - 1];
}

/* Summands of the scores of a query and two neighbouring keys. */
__device__ static inline float apart(const window_rows &rows, int query, int key)
{
    return rows.region[query] != rows.region[key] ? (float)ATTENTION_APART * log2_e : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(threads, 4)
window_forward_kernel(const __grid_constant__ tensors<T> t, const __grid_constant__ layout l)
{
    extern __shared__ uint4 memory[];
    window_room<3> &room = *(window_room<3> *)memory;
    int head = blockIdx.x % l.heads, lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16;
    int64_t group = blockIdx.x / l.heads, step = gridDim.x / l.heads;
    own_tokens tokens(l);
    float bias[tiles][4];
    if (group < l.groups) fetch_window<T, 3>(room, 0, t, l, group, head, tokens);
    load_bias(bias, t.table, l, head);
    for (int stage = 0; group < l.groups; group += step, stage ^= 1) {
        copies_wait();
        __syncthreads();
        if (group + step < l.groups) fetch_window<T, 3>(room, stage ^ 1, t, l, group + step, head, tokens);
        const window_rows &rows = room.rows[stage];
        const uint4 *q_matrix = room.matrix[stage][0];
        uint32_t q[wide / 16][4];
        float s[tiles][4], out[1][wide / 8][4], factor[2];
        load_rows<wide>(q, q_matrix, first);
        scores_of<T, wide, tiles>(s, q, right_columns<wide>(room.matrix[stage][1]));
        bool divided = is_divided(rows, l);
#pragma unroll
        for (int n = 0; n < tiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int query = first + lane / 4 + e / 2 * 8, key = 8 * n + lane % 4 * 2 + e % 2;
                s[n][e] = fmaf(s[n][e], l.scale, bias[n][e]);
                if (divided) s[n][e] += apart(rows, query, key);
            }
        softmax of = {{-INFINITY, -INFINITY}, {0, 0}};
        exponentials<tiles>(s, 1, of, factor);
        clear<wide, 1>(out);
        mix<T, wide, tiles>(out[0], s, right_rows<wide>(room.matrix[stage][2]));
        token at[2];
        bool here[2];
        for (int half = 0; half < 2; half++) {
            int row = first + lane / 4 + 8 * half;
            here[half] = row < l.tokens;
            at[half].pixel = rows.pixel[row], at[half].y_pixel = rows.y_pixel[row];
        }
        store_results<T, wide>(t, l, at, here, head, out[0], of);
    }
}

/* Rows of 64 numbers of 16 bits, where products are stored as factors: 16 rows and two tiles of columns at a
 * time. */
struct square {
    uint4 at[extent * pitch<extent>()];
    __device__ void store(const uint32_t (&word)[4], int row, int tile)
    {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int to = row + lane / 4 + i % 2 * 8;
            ((uint32_t *)&at[unit_of<extent>(to, tile + i / 2)])[lane % 4] = word[i];
        }
    }
    /* Left factors: 16 of its columns as rows, k over 16 rows. */
    __device__ void load(uint32_t (&to)[4], int column, int row) const
    {
        int lane = threadIdx.x % 32;
        load_turned(to, address_of(at + unit_of<extent>(row + lane % 8 + lane / 16 * 8,
                                                        column / 8 + lane / 8 % 2)));
    }
};

struct backward_window {
    window_room<5> in;
    square p, d;
    float lse[extent], delta[extent];
};

/* delta = d_y . y; those behind the last token have lse = inf. */
template <class T>
__device__ static inline void measure_window(backward_window &room, int stage, const layout &l)
{
    int unit = threadIdx.x % 4;
    for (int row = threadIdx.x / 4; row < extent; row += threads / 4) {
        const pack<T> &a = *(const pack<T> *)&room.in.matrix[stage][3][unit_of<wide>(row, unit)];
        const pack<T> &b = *(const pack<T> *)&room.in.matrix[stage][4][unit_of<wide>(row, unit)];
        float sum = 0;
#pragma unroll
        for (int e = 0; e < 8; e++) sum = fmaf(to_float(a.at[e]), to_float(b.at[e]), sum);
        sum = quad_sum(sum);
        if (unit != 0) continue;
        room.delta[row] = sum;
        room.lse[row] = row < l.tokens ? room.in.rows[stage].lse[row] * log2_e : INFINITY;
    }
}

template <class T>
__device__ static inline void store_window(const tensors<T> &t, const layout &l, const window_rows &rows,
                                           int part, int head, const float (&sums)[1][wide / 8][4],
                                           float factor)
{
    for (int half = 0; half < 2; half++) {
        int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
        T *to = t.to + ((int64_t)rows.pixel[row] * 3 + part) * l.heads * wide + head * wide;
        store_row<T, wide>(to, sums[0], half, factor, row < l.tokens && t.to);
    }
}

/* parts: [blocks of a head, heads, extent, extent], the sums of d_score; or NULL. */
template <class T>
__global__ void __launch_bounds__(threads, 3)
window_backward_kernel(const __grid_constant__ tensors<T> t, const __grid_constant__ layout l, float *parts)
{
    extern __shared__ uint4 memory[];
    backward_window &room = *(backward_window *)memory;
    int head = blockIdx.x % l.heads, lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16;
    int64_t group = blockIdx.x / l.heads, step = gridDim.x / l.heads;
    own_tokens tokens(l);
    float bias[tiles][4], d_bias[tiles][4] = {};
    if (group < l.groups) fetch_window<T, 5>(room.in, 0, t, l, group, head, tokens);
    load_bias(bias, t.table, l, head);
    for (int stage = 0; group < l.groups; group += step, stage ^= 1) {
        copies_wait();
        __syncthreads();
        if (group + step < l.groups) fetch_window<T, 5>(room.in, stage ^ 1, t, l, group + step, head, tokens);
        measure_window<T>(room, stage, l);
        __syncthreads();
        const window_rows &rows = room.in.rows[stage];
        uint4(*matrix)[extent * pitch<wide>()] = room.in.matrix[stage];
        bool divided = is_divided(rows, l);
        {
            own_rows<wide, 1, true> own(matrix[0], matrix[3], first);
            float sums[1][wide / 8][4];
            clear<wide, 1>(sums);
            right_columns<wide> k_columns(matrix[1]), v_columns(matrix[2]);
            right_rows<wide> k_rows(matrix[1]);
#pragma unroll
            for (int n = 0; n < tiles; n += 2) {
                float s[1][2][4], d[1][2][4];
                products_of<T, wide, 1>(s, d, own, k_columns, v_columns, 8 * n);
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int query = first + lane / 4 + e / 2 * 8, key = 8 * (n + i) + lane % 4 * 2 + e % 2;
                        float score = fmaf(s[0][i][e], l.scale, bias[n + i][e]);
                        if (divided) score += apart(rows, query, key);
                        s[0][i][e] = exp2_of(score - room.lse[query]);
                        d[0][i][e] = s[0][i][e] * (d[0][i][e] - room.delta[query]);
                        d_bias[n + i][e] += d[0][i][e];
                    }
                uint32_t word[4];
                pack_rows<T>(word, s[0][0], s[0][1]);
                room.p.store(word, first, n);
                pack_rows<T>(word, d[0][0], d[0][1]);
                room.d.store(word, first, n);
                collect<T, wide, 1>(sums, d, k_rows, 8 * n);
            }
            store_window(t, l, rows, 0, head, sums, l.scale / log2_e);
        }
        __syncthreads();
        float keys[1][wide / 8][4], values[1][wide / 8][4];
        clear<wide, 1>(keys);
        clear<wide, 1>(values);
        right_rows<wide> q_rows(matrix[0]), d_y_rows(matrix[3]);
#pragma unroll
        for (int row = 0; row < extent; row += 16) {
            uint32_t p[4], d[4];
            room.p.load(p, first, row);
            room.d.load(d, first, row);
#pragma unroll
            for (int k = 0; k < wide / 16; k++) {
                uint32_t a[4], b[4];
                d_y_rows.load(a, row, k);
                q_rows.load(b, row, k);
                multiply(values[0][2 * k], p, a[0], a[1], T());
                multiply(values[0][2 * k + 1], p, a[2], a[3], T());
                multiply(keys[0][2 * k], d, b[0], b[1], T());
                multiply(keys[0][2 * k + 1], d, b[2], b[3], T());
            }
        }
        store_window(t, l, rows, 1, head, keys, l.scale / log2_e);
        store_window(t, l, rows, 2, head, values, 1);
    }
    if (!parts) return;
    float *to = parts + (int64_t)blockIdx.x * extent * extent;
#pragma unroll
    for (int n = 0; n < tiles; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            to[(first + lane / 4 + e / 2 * 8) * extent + 8 * n + lane % 4 * 2 + e % 2] = d_bias[n][e];
}

/* d_table[row][head]: the sum of those of sums[head][query][key] that have this row. */
__global__ void window_table_kernel(float *d_table, const float *sums, const __grid_constant__ layout l)
{
    int reach = 2 * l.window - 1, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= reach * reach * l.heads) return;
    int row = i / l.heads, head = i % l.heads;
    int down = row / reach - l.window + 1, right = row % reach - l.window + 1;
    float sum = 0;
    for (int key = 0; key < l.tokens; key++) {
        int h = key / l.window + down, w = key % l.window + right;
        if (h >= 0 && h < l.window && w >= 0 && w < l.window)
            sum += sums[(head * extent + h * l.window + w) * extent + key];
    }
    d_table[i] = sum;
}

/* ---- Launches ---- */

bool windows_take(const struct call *call, const layout &l)
{
    enum dtype dtype = call->x[0].dtype;
    return (dtype == F16 || dtype == BF16) && l.size == wide && l.window > 0 && l.tokens <= extent;
}

/* Blocks of each head. */
static int64_t blocks_each(const struct call *call, const layout &l, int of_multiprocessor)
{
    int64_t blocks = (int64_t)multiprocessors_of(call->device) * of_multiprocessor;
    int64_t most = div_up(blocks, (int64_t)l.heads);
    return l.groups < most ? l.groups : most;
}

/* The blocks' sums, and theirs. */
size_t windows_workspace(const struct call *call, const layout &l)
{
    return (size_t)(blocks_each(call, l, 3) + 1) * l.heads * extent * extent * sizeof(float);
}

template <class Work> static enum status with_half(const struct call *call, Work work)
{
    return call->x[0].dtype == F16 ? work(__half()) : work(__nv_bfloat16());
}

enum status windows_forward(const struct call *call, const layout &l)
{
    return with_half(call, [&](auto type) {
        using T = decltype(type);
        unsigned blocks = (unsigned)(blocks_each(call, l, 4) * l.heads);
        TRY(open_shared(call, window_forward_kernel<T>, sizeof(window_room<3>)));
        window_forward_kernel<T><<<blocks, threads, sizeof(window_room<3>), stream_of(call)>>>(
            tensors_of<T>(call), l);
        return launched(call);
    });
}

enum status windows_backward(const struct call *call, const layout &l)
{
    return with_half(call, [&](auto type) {
        using T = decltype(type);
        int64_t each = blocks_each(call, l, 3), across = (int64_t)l.heads * extent * extent;
        float *d_table = (float *)call->d_params[0].data, *parts = d_table ? (float *)call->workspace : NULL;
        TRY(open_shared(call, window_backward_kernel<T>, sizeof(backward_window)));
        window_backward_kernel<T><<<(unsigned)(each * l.heads), threads, sizeof(backward_window),
                                    stream_of(call)>>>(tensors_of<T>(call), l, parts);
        TRY(launched(call));
        if (!parts) return OK;
        float *sums = parts + each * across;
        TRY(columns_finish(call, {parts, (int)each, 1, (int)across}, sums));
        int64_t rows = shape_count(call->params[0].shape);
        unsigned blocks = (unsigned)div_up(rows, (int64_t)128);
        window_table_kernel<<<blocks, 128, 0, stream_of(call)>>>(d_table, sums, l);
        return launched(call);
    });
}

}
