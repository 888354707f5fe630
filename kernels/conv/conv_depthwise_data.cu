/* conv_depthwise_data.cu: d_x of a depthwise convolution from d_y at stride 2.
 *
 * Row p of d_y adds to k rows of d_x from 2p - pad on, of which the first two are then complete. Walks go
 * over an even number of rows of d_x. */
#include "kernels/conv/conv_depthwise.cuh"

template <class F> struct spread {
    static constexpr int before = F::pad / 2;              /* pixels of d_y in front of a strip's middle */
    static constexpr int wide = before + (F::columns - 1 + F::pad) / 2 + 1;
};

template <class F>
__device__ static inline depthwise_steps data_steps(const depthwise_layout &l, const depthwise_walk &at)
{
    int first = (at.first + F::pad) / 2 - (F::k - 1) / 2, end = (at.last - 1 + F::pad) / 2 + 1;
    return {first > 0 ? first : 0, end < l.out[0] ? end : l.out[0]};
}

template <class F> __device__ static inline int block_wide(const depthwise_layout &l)
{
    return spread<F>::before + (l.down * F::columns - 1 + F::pad) / 2 + 1;
}

template <class T, class F>
__device__ static inline void stage_step(const depthwise_layout &l, const depthwise_stager &stager,
                                         const depthwise_walk &at, const depthwise_operands &o, int p, T *to)
{
    const T *row = (const T *)o.from + ((int64_t)at.n * l.out[0] + p) * l.out[1] * l.c;
    stage_row<T, F>(l, stager, to, {row, at.column / 2 - spread<F>::before, l.out[1], block_wide<F>(l)});
}

/* Adds what a strip of d_y contributes to the k rows; to column i, by the taps at an even distance. */
template <class F>
__device__ static inline void spread_strip(float sum[F::k][F::columns][F::channels],
                                           const float d[spread<F>::wide][F::channels],
                                           const float w[F::taps][F::channels])
{
#pragma unroll
    for (int r = 0; r < F::k; r++)
#pragma unroll
        for (int s = 0; s < F::k; s++)
#pragma unroll
            for (int i = 0; i < F::columns; i++) {
                if ((i + F::pad + s) % 2 != 0) continue;
                const int q = spread<F>::before + (i + 2 * F::k + F::pad - s) / 2 - F::k;
                add_product<F>(sum[r][i], d[q], w[r * F::k + s]);
            }
}

/* A thread's strip of an image of d_x: its first pixel in row 0, its column, and the image's width, or 0 if
 * the thread has no channels. */
template <class T> struct data_strip {
    T *to;
    int column, width;
};

/* Writes row 2p - pad of d_x and the next, if they belong to the walk. */
template <class T, class F>
__device__ static inline void store_pair(const depthwise_layout &l, const depthwise_walk &at,
                                         const data_strip<T> &strip, int p,
                                         float sum[F::k][F::columns][F::channels])
{
    const float zero[F::channels] = {};
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int row = 2 * p - F::pad + j;
        if (row < at.first || row >= at.last) continue;
        T *to = strip.to + (int64_t)row * l.in[1] * l.c;
        store_strip<T, F>(to, l.c, strip.column, strip.width, sum[j], NULL);
    }
    move_up<F, F::k, 2>(sum, zero);
}

template <class T, class F>
__device__ static void spread_walks(const depthwise_layout &l, const depthwise_operands &o, const T *memory,
                                    depthwise_ring *ring)
{
    depthwise_thread t = depthwise_thread_of<F>(l);
    const T *own = memory + t.strip * (F::columns / 2) * t.pitch + t.lane * F::channels;
    depthwise_place place = {0, 0};
    float w[F::taps][F::channels];
    load_weights<T, F>(w, (const T *)o.weight, t.channel, false);
    for (int index = blockIdx.y; index < l.walks; index += gridDim.y) {
        depthwise_walk at = walk_at(l, index, l.in[0], F::columns);
        int column = at.column + t.strip * F::columns;
        T *to = (T *)o.to + ((int64_t)at.n * l.in[0] * l.in[1] + column) * l.c + t.channel;
        data_strip<T> strip = {to, column, t.any ? l.in[1] : 0};
        float sum[F::k][F::columns][F::channels] = {};
        int p = data_steps<F>(l, at).first, end = data_steps<F>(l, at).end, all = (at.last - 1 + F::pad) / 2;
#pragma unroll 2
        for (; p < end; p++) {
            float d[spread<F>::wide][F::channels];
            barrier_wait(&ring->full[place.slot], place.parity);
            read_pixels<T, F, spread<F>::wide>(d, own + place.slot * block_wide<F>(l) * t.pitch, t.pitch);
            ring_release(ring, &place, l.slots);
            spread_strip<F>(sum, d, w);
            store_pair<T, F>(l, at, strip, p, sum);
        }
#pragma unroll 1
        for (; p <= all; p++) store_pair<T, F>(l, at, strip, p, sum);
    }
}

template <class T, class F>
__global__ void __launch_bounds__(F::threads, F::blocks)
data_kernel(depthwise_layout l, depthwise_operands o)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ depthwise_ring ring;
    ring_open(l, &ring);
    int size = block_wide<F>(l) * l.across * F::channels;
    if (is_stager(l))
        stage_walks<T, F, data_steps<F>, stage_step<T, F>>(l, o, l.in[0], size, (T *)memory, &ring);
    else spread_walks<T, F>(l, o, (const T *)memory, &ring);
}

depthwise_kernel depthwise_data_kernel(const struct conv_call *p, const struct depthwise_tile *tile)
{
    return with_depthwise_form(p, tile, [&](auto type, auto form) -> depthwise_kernel {
        using F = decltype(form);
        if constexpr (F::stride == 2 && F::columns % 2 == 0) return data_kernel<decltype(type), F>;
        else return NULL;
    });
}
