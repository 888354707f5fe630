/* attention_tiles.cu: attention of whole images in 16 bits. A block has a head of an image. Its queries,
 * keys, values and gradients lie in shared memory, and scores never leave registers:
 *
 *   forward    a warp has 16 queries and their scores for all keys;
 *   backward   a warp has 32 keys and goes through the queries, for the gradients of keys and values; or 32
 *              queries and goes through the keys. Which warp has which is as it happens, and changes no sum.
 *
 * If tokens do not fit, a block has as many rows as its warps hold, and the others pass by in parts. */
#include "kernels/attention/attention_tiles.cuh"

namespace attention_parts {

/* Copies rows `first` .. of a part (0 to 2: q, k, v) of an image's head; zeros behind the last token. */
template <class T, int size>
__device__ static inline void fetch(uint4 *to, const T *from, int64_t pitch_from, int first, int rows,
                                    int tokens, int thread, int threads)
{
    for (int i = thread; i < rows * (size / 8); i += threads) {
        int row = i / (size / 8), unit = i % (size / 8);
        bool here = first + row < tokens;
        copy_unit(to + unit_of<size>(row, unit), from + (here ? (first + row) * pitch_from : 0) + unit * 8,
                  here);
    }
}

/* Where a head's part begins, and the distance of tokens. */
template <class T, int size> struct head_view {
    const T *q, *k, *v;
    int64_t pitch, pixel;             /* that of the image's first token */
    int head;
    __device__ head_view(const tensors<T> &t, const layout &l, unsigned index)
    {
        head = index % l.heads;
        pixel = (int64_t)(index / l.heads) * l.tokens;
        pitch = (int64_t)3 * l.heads * size;
        q = t.x + pixel * pitch + head * size;
        k = q + l.heads * size;
        v = k + l.heads * size;
    }
};

/* `tiles` * 8 are at least all keys, with `whole`; otherwise keys pass in such parts, and a block has a tile
 * for each warp. */
template <class T, int size, int tiles, bool whole>
__global__ void __launch_bounds__(128, 3)
attention_forward_kernel(const __grid_constant__ tensors<T> t, const __grid_constant__ layout l)
{
    extern __shared__ uint4 room[];
    constexpr int rows = tiles * 8, warps = 4;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint4 *keys = room, *values = keys + rows * pitch<size>();
    uint4 *mine = values + (rows + 16 * warp) * pitch<size>();
    head_view<T, size> at(t, l, blockIdx.x);
    right_columns<size> key_columns(keys);
    right_rows<size> value_rows(values);
    int count = div_up(l.tokens, 16), turn = (warp + blockIdx.x) % warps;
    int tile = whole ? turn : blockIdx.y * warps + warp, end = whole ? count : tile + 1;
    if (whole) {
        fetch<T, size>(keys, at.k, at.pitch, 0, rows, l.tokens, threadIdx.x, 128);
        fetch<T, size>(mine, at.q, at.pitch, 16 * tile, 16, l.tokens, lane, 32);
        fetch<T, size>(values, at.v, at.pitch, 0, rows, l.tokens, threadIdx.x, 128);
        copies_wait();
        __syncthreads();
    } else {
        fetch<T, size>(mine, at.q, at.pitch, 16 * tile, 16, l.tokens, lane, 32);
        copies_wait();
        __syncwarp();
    }
    for (; tile < end; tile += warps) {
        uint32_t q[size / 16][4];
        load_rows<size>(q, mine, 0);
        __syncwarp();
        if (whole && tile + warps < count)
            fetch<T, size>(mine, at.q, at.pitch, 16 * (tile + warps), 16, l.tokens, lane, 32);
        float out[1][size / 8][4], factor[2];
        softmax rows_of = {{-INFINITY, -INFINITY}, {0, 0}};
        clear<size, 1>(out);
        for (int first = 0; whole ? first == 0 : first < l.tokens; first += rows) {
            if (!whole) {
                __syncthreads();
                fetch<T, size>(keys, at.k, at.pitch, first, rows, l.tokens, threadIdx.x, 128);
                fetch<T, size>(values, at.v, at.pitch, first, rows, l.tokens, threadIdx.x, 128);
                copies_wait();
                __syncthreads();
            }
            float s[tiles][4];
            scores_of<T, size, tiles>(s, q, key_columns);
            cut_columns<tiles>(s, l.tokens - first);
            exponentials<tiles>(s, l.scale, rows_of, factor);
            if (!whole)
#pragma unroll
                for (int n = 0; n < size / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) out[0][n][e] *= factor[e / 2];
            mix<T, size, tiles>(out[0], s, value_rows);
        }
        token of[2];
        bool here[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = 16 * tile + 8 * half + lane / 4;
            here[half] = row < l.tokens;
            of[half].pixel = of[half].y_pixel = at.pixel + row;
        }
        store_results<T, size>(t, l, of, here, at.head, out[0], rows_of);
        if (whole) {
            copies_wait();
            __syncwarp();
        }
    }
}

/* Queues copies of lse. */
template <class T, int size>
__device__ static inline void fetch_lse(float *lse, const tensors<T> &t, const layout &l,
                                        const head_view<T, size> &at, int first, int rows)
{
    const float *from = t.lse + at.head * l.pixels + at.pixel + first;
    for (int row = threadIdx.x; row < rows && first + row < l.tokens; row += blockDim.x)
        copy_word(lse + row, from + row);
}

/* lse in units of log(2), by the threads that fetched it; behind the last token it is inf, so that
 * exponentials are 0. */
__device__ static inline void scale_lse(float *lse, int count, int rows)
{
    for (int row = threadIdx.x; row < rows; row += blockDim.x)
        lse[row] = row < count ? lse[row] * log2_e : INFINITY;
}

/* delta = d_y . y of rows, d_y and lse being on their way to shared memory: y is loaded meanwhile. */
template <class T, int size>
__device__ static inline void measure(float *delta, float *lse, const uint4 *d_y, const tensors<T> &t,
                                      const layout &l, const head_view<T, size> &at, int first, int rows)
{
    constexpr int lanes = size >= 64 ? 8 : size / 8, units = (size / 8 + lanes - 1) / lanes;
    constexpr int many = 14 / units;
    int lane = threadIdx.x % lanes, step = blockDim.x / lanes;
    for (int base = threadIdx.x / lanes, turn = 0; turn * many * step < rows; turn++, base += many * step) {
        uint4 y[many][units];
#pragma unroll
        for (int i = 0; i < many; i++)
#pragma unroll
            for (int k = 0; k < units; k++) {
                int row = first + base + i * step, unit = lane + k * lanes;
                int64_t from = ((at.pixel + row) * l.heads + at.head) * size + unit * 8;
                bool here = base + i * step < rows && row < l.tokens && unit < size / 8;
                y[i][k] = here ? *(const uint4 *)(t.y + from) : uint4{};
            }
        if (turn == 0) {
            copies_wait();
            scale_lse(lse, l.tokens - first, rows);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < many; i++) {
            int row = base + i * step;
            float sum = 0;
#pragma unroll
            for (int k = 0; k < units; k++) {
                int unit = lane + k * lanes;
                if (row >= rows || unit >= size / 8) continue;
                uint4 beside = d_y[unit_of<size>(row, unit)];
                const pack<T> &a = *(const pack<T> *)&beside, &b = *(const pack<T> *)&y[i][k];
#pragma unroll
                for (int e = 0; e < 8; e++) sum = fmaf(to_float(a.at[e]), to_float(b.at[e]), sum);
            }
#pragma unroll
            for (int distance = lanes / 2; distance > 0; distance /= 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, distance);
            if (lane == 0 && row < rows) delta[row] = sum;
        }
    }
}

/* The shared memory of backward: matrices of whole tiles, or a block's own rows with parts of the others. */
template <int size> struct backward_room {
    uint4 *q, *k, *v, *d_y;
    float *lse, *delta;
    int *next;
    __device__ backward_room(uint4 *room, int rows)
    {
        q = room, k = q + rows * pitch<size>(), v = k + rows * pitch<size>(), d_y = v + rows * pitch<size>();
        lse = (float *)(d_y + rows * pitch<size>()), delta = lse + rows;
        next = (int *)(delta + rows);
    }
};

template <int size> __host__ __device__ constexpr size_t backward_bytes(int rows)
{
    return (size_t)4 * matrix_bytes<size>(rows) + (2 * rows + 32) * sizeof(float);    /* in whole rows */
}

/* Rows of d_x: `many` tiles from `row` on. */
template <class T, int size, int many>
__device__ static inline void store_gradients(T *to, int64_t pitch_to, const float (&sums)[many][size / 8][4],
                                              int row, int tokens, float factor)
{
#pragma unroll
    for (int m = 0; m < many; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int at = row + 16 * m + 8 * half + threadIdx.x % 32 / 4;
            store_row<T, size>(to + at * pitch_to, sums[m], half, factor, at < tokens);
        }
}

/* Registers do not suffice for both of two tiles' factors beside their sums. */
template <class T, int size, int many>
__device__ static inline void backward_keys(const backward_room<size> &r, const layout &l, int row, int rows,
                                            T *d_k, T *d_v, int64_t pitch_to)
{
    own_rows<size, many, many == 1 || size == 32> own(r.k, r.v, row);
    float keys[many][size / 8][4], values[many][size / 8][4];
    clear<size, many>(keys);
    clear<size, many>(values);
    right_columns<size> q_columns(r.q), d_y_columns(r.d_y);
    right_rows<size> q_rows(r.q), d_y_rows(r.d_y);
#pragma unroll 1
    for (int column = 0; column < rows; column += 16) {
        float s[many][2][4], d[many][2][4];
        products_of<T, size, many>(s, d, own, q_columns, d_y_columns, column);
        gradients_of_keys<many>(s, d, l.scale, r.lse, r.delta, column);
        collect<T, size, many>(values, s, d_y_rows, column);
        collect<T, size, many>(keys, d, q_rows, column);
    }
    store_gradients<T, size, many>(d_k, pitch_to, keys, row, l.tokens, l.scale / log2_e);
    store_gradients<T, size, many>(d_v, pitch_to, values, row, l.tokens, 1);
}

template <class T, int size, int many>
__device__ static inline void backward_queries(const backward_room<size> &r, const layout &l, int row,
                                               int rows, T *d_q, int64_t pitch_to)
{
    own_rows<size, many, true> own(r.q, r.d_y, row);
    float sums[many][size / 8][4], lse[many][2], delta[many][2];
    clear<size, many>(sums);
#pragma unroll
    for (int m = 0; m < many; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int at = row + 16 * m + 8 * half + threadIdx.x % 32 / 4;
            lse[m][half] = r.lse[at], delta[m][half] = r.delta[at];
        }
    right_columns<size> k_columns(r.k), v_columns(r.v);
    right_rows<size> k_rows(r.k);
#pragma unroll 1
    for (int column = 0; column < rows; column += 16) {
        float s[many][2][4], d[many][2][4];
        products_of<T, size, many>(s, d, own, k_columns, v_columns, column);
        gradients_of_queries<many>(s, d, l.scale, lse, delta, l.tokens - column);
        collect<T, size, many>(sums, d, k_rows, column);
    }
    store_gradients<T, size, many>(d_q, pitch_to, sums, row, l.tokens, l.scale / log2_e);
}

/* Work of a warp: first keys, then queries, `many` tiles at a time. */
template <class T, int size, int many, int warps, int blocks>
__global__ void __launch_bounds__(32 * warps, blocks)
attention_backward_kernel(const __grid_constant__ tensors<T> t, const __grid_constant__ layout l)
{
    extern __shared__ uint4 room[];
    int tiles = div_up(l.tokens, 16), rows = 16 * tiles, each = div_up(tiles, many);
    backward_room<size> r(room, rows);
    head_view<T, size> at(t, l, blockIdx.x);
    int64_t y_pitch = (int64_t)l.heads * size;
    fetch<T, size>(r.q, at.q, at.pitch, 0, rows, l.tokens, threadIdx.x, blockDim.x);
    fetch<T, size>(r.k, at.k, at.pitch, 0, rows, l.tokens, threadIdx.x, blockDim.x);
    fetch<T, size>(r.v, at.v, at.pitch, 0, rows, l.tokens, threadIdx.x, blockDim.x);
    const T *d_y = t.d_y + at.pixel * y_pitch + at.head * size;
    fetch<T, size>(r.d_y, d_y, y_pitch, 0, rows, l.tokens, threadIdx.x, blockDim.x);
    if (threadIdx.x == 0) *r.next = 0;
    fetch_lse<T, size>(r.lse, t, l, at, 0, rows);
    measure<T, size>(r.delta, r.lse, r.d_y, t, l, at, 0, rows);
    __syncthreads();
    T *d_q = t.to + (at.q - t.x), *d_k = t.to + (at.k - t.x), *d_v = t.to + (at.v - t.x);
    for (;;) {
        int item = 0;
        if (threadIdx.x % 32 == 0) item = atomicAdd(r.next, 1);
        item = __shfl_sync(0xffffffffu, item, 0);
        if (item >= 2 * each) break;
        int row = item % each * 16 * many;
        bool full = row + 16 * many <= rows;
        if (item < each) {
            if (full) backward_keys<T, size, many>(r, l, row, rows, d_k, d_v, at.pitch);
            else backward_keys<T, size, 1>(r, l, row, rows, d_k, d_v, at.pitch);
        } else {
            if (full) backward_queries<T, size, many>(r, l, row, rows, d_q, at.pitch);
            else backward_queries<T, size, 1>(r, l, row, rows, d_q, at.pitch);
        }
    }
}

/* Tokens that pass in parts of `part` rows; a warp of a block has 16 of 64 rows, keys in even blocks and
 * queries in odd ones. */
constexpr int part = 64, streams = 4;

template <class T, int size>
__global__ void __launch_bounds__(32 * streams)
attention_stream_kernel(const __grid_constant__ tensors<T> t, const __grid_constant__ layout l)
{
    extern __shared__ uint4 room[];
    backward_room<size> own_room(room, part);
    backward_room<size> r(room + backward_bytes<size>(part) / sizeof *room, part);
    head_view<T, size> at(t, l, blockIdx.x);
    bool of_keys = blockIdx.y % 2 == 0;
    int first = blockIdx.y / 2 * part, row = threadIdx.x / 32 * 16;
    int64_t y_pitch = (int64_t)l.heads * size;
    const T *d_y = t.d_y + at.pixel * y_pitch + at.head * size;
    uint4 *own_first = of_keys ? own_room.k : own_room.q, *own_second = of_keys ? own_room.v : own_room.d_y;
    fetch<T, size>(own_first, of_keys ? at.k : at.q, at.pitch, first, part, l.tokens, threadIdx.x,
                   blockDim.x);
    fetch<T, size>(own_second, of_keys ? at.v : d_y, of_keys ? at.pitch : y_pitch, first, part, l.tokens,
                   threadIdx.x, blockDim.x);
    if (!of_keys) {
        fetch_lse<T, size>(own_room.lse, t, l, at, first, part);
        measure<T, size>(own_room.delta, own_room.lse, own_room.d_y, t, l, at, first, part);
    }
    copies_wait();
    __syncthreads();
    own_rows<size, 1, true> own(own_first, own_second, row);
    uint4 *passing = of_keys ? r.q : r.k, *beside = of_keys ? r.d_y : r.v;
    right_columns<size> first_columns(passing), second_columns(beside);
    right_rows<size> first_rows(passing), second_rows(beside);
    float sums[1][size / 8][4], values[1][size / 8][4], lse[1][2], delta[1][2];
    clear<size, 1>(sums);
    clear<size, 1>(values);
    for (int half = 0; half < 2; half++) {
        lse[0][half] = own_room.lse[row + 8 * half + threadIdx.x % 32 / 4];
        delta[0][half] = own_room.delta[row + 8 * half + threadIdx.x % 32 / 4];
    }
    for (int from = 0; from < l.tokens; from += part) {
        __syncthreads();
        fetch<T, size>(passing, of_keys ? at.q : at.k, at.pitch, from, part, l.tokens, threadIdx.x,
                       blockDim.x);
        fetch<T, size>(beside, of_keys ? d_y : at.v, of_keys ? y_pitch : at.pitch, from, part, l.tokens,
                       threadIdx.x, blockDim.x);
        if (of_keys) {
            fetch_lse<T, size>(r.lse, t, l, at, from, part);
            measure<T, size>(r.delta, r.lse, r.d_y, t, l, at, from, part);
        }
        copies_wait();
        __syncthreads();
#pragma unroll 1
        for (int column = 0; column < part; column += 16) {
            float s[1][2][4], d[1][2][4];
            products_of<T, size, 1>(s, d, own, first_columns, second_columns, column);
            if (of_keys) {
                gradients_of_keys<1>(s, d, l.scale, r.lse, r.delta, column);
                collect<T, size, 1>(values, s, second_rows, column);
            } else {
                gradients_of_queries<1>(s, d, l.scale, lse, delta, l.tokens - from - column);
            }
            collect<T, size, 1>(sums, d, first_rows, column);
        }
    }
    T *to = t.to + ((of_keys ? at.k : at.q) - t.x);
    store_gradients<T, size, 1>(to, at.pitch, sums, first + row, l.tokens, l.scale / log2_e);
    if (of_keys)
        store_gradients<T, size, 1>(t.to + (at.v - t.x), at.pitch, values, first + row, l.tokens, 1);
}

/* ---- Launches ---- */

/* Without a device: an H100's. */
static inline size_t shared_max(const struct call *call)
{
    return call->device ? cuda_facts(call->device)->shared_bytes : 227 << 10;
}

/* Calls work(T(), size) for types and sizes of heads that have kernels. */
template <class Work> static enum status with_size(const struct call *call, const layout &l, Work work)
{
    auto with = [&](auto type) {
        if (l.size == 32) return work(type, constant<32>());
        if (l.size == 64) return work(type, constant<64>());
        return work(type, constant<80>());
    };
    return call->x[0].dtype == F16 ? with(__half()) : with(__nv_bfloat16());
}

bool tiles_take(const struct call *call, const layout &l)
{
    enum dtype dtype = call->x[0].dtype;
    bool sizes = l.size == 32 || l.size == 64 || l.size == 80;
    return (dtype == F16 || dtype == BF16) && sizes && l.window == 0;
}

bool tiles_hold(const struct call *call, const layout &l, bool backward)
{
    if (!backward) return l.tokens <= (l.size == 64 ? 208 : 64);
    int rows = 16 * div_up(l.tokens, 16);
    return (l.size == 32 ? backward_bytes<32>(rows) : l.size == 64 ? backward_bytes<64>(rows)
                                                                    : backward_bytes<80>(rows)) <=
           shared_max(call);
}

template <class T, int size, int tiles, bool whole>
static enum status forward_launch(const struct call *call, const layout &l)
{
    auto kernel = attention_forward_kernel<T, size, tiles, whole>;
    size_t bytes = (size_t)matrix_bytes<size>(2 * 8 * tiles + 64);
    dim3 grid((unsigned)(l.groups * l.heads), whole ? 1 : (unsigned)div_up(l.tokens, 64));
    TRY(open_shared(call, kernel, bytes));
    kernel<<<grid, 128, bytes, stream_of(call)>>>(tensors_of<T>(call), l);
    return launched(call);
}

enum status tiles_forward(const struct call *call, const layout &l)
{
    return with_size(call, l, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int size = decltype(wide)::number;
        if (l.tokens <= 64) return forward_launch<T, size, 8, true>(call, l);
        if constexpr (size == 64) {
            if (l.tokens <= 144 && l.tokens > 128) return forward_launch<T, size, 18, true>(call, l);
            if (l.tokens <= 208 && l.tokens > 128) return forward_launch<T, size, 26, true>(call, l);
        }
        return forward_launch<T, size, 16, false>(call, l);
    });
}

enum status tiles_backward(const struct call *call, const layout &l)
{
    return with_size(call, l, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int size = decltype(wide)::number, many = size == 80 ? 1 : 2;
        size_t whole = backward_bytes<size>(16 * div_up(l.tokens, 16));
        if (whole <= shared_max(call)) {
            auto launch = [&](auto kernel, int threads) {
                TRY(open_shared(call, kernel, whole));
                kernel<<<(unsigned)(l.groups * l.heads), threads, whole, stream_of(call)>>>(
                    tensors_of<T>(call), l);
                return launched(call);
            };
            bool two = 2 * whole <= shared_max(call);
            if (two) return launch(attention_backward_kernel<T, size, many, 4, 2>, 128);
            return launch(attention_backward_kernel<T, size, many, 8, 1>, 256);
        }
        auto kernel = attention_stream_kernel<T, size>;
        size_t bytes = 2 * backward_bytes<size>(part);
        dim3 grid((unsigned)(l.groups * l.heads), 2 * (unsigned)div_up(l.tokens, part));
        TRY(open_shared(call, kernel, bytes));
        kernel<<<grid, 32 * streams, bytes, stream_of(call)>>>(tensors_of<T>(call), l);
        return launched(call);
    });
}

}
