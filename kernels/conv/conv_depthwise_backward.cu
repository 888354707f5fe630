/* conv_depthwise_backward.cu: d_x of a 3x3 depthwise convolution and each block's share of its weight
 * gradient, from x and d_y, which are read once.
 *
 * A walk goes down rows of y. Its step p brings row p of d_y and the rows of x at row p - 1 of y, as many as
 * the stride: these depend only on rows of d_y that have been read. */
#include "kernels/conv/conv_depthwise.cuh"
#include "kernels/support/dependent_launch.cuh"

/* The rows and columns of d_y that a strip of x is multiplied with; at stride 1, one of them precedes it. */
template <class F> struct met {
    static constexpr int before = F::stride == 1, rows = F::active;
    static constexpr int columns = F::columns / F::stride + F::active - 1;
};

/* A slot holds a row of d_y, then rows of x. */
template <class F> struct backward_slot {
    int wide, d_size, x_size, size;
};

template <class F> __device__ static inline backward_slot<F> slot_of(const depthwise_layout &l)
{
    int pitch = l.across * F::channels, wide = l.down * F::columns / F::stride + F::active - 1;
    int d_size = wide * pitch, x_size = l.down * F::columns * pitch;
    return {wide, d_size, x_size, d_size + F::stride * x_size};
}

template <class T, class F>
__device__ static inline void stage_step(const depthwise_layout &l, const depthwise_stager &stager,
                                         const depthwise_walk &at, const depthwise_operands &o, int p, T *to)
{
    backward_slot<F> slot = slot_of<F>(l);
    bool inside = (unsigned)p < (unsigned)l.out[0];
    const T *d_y = (const T *)o.d_y + ((int64_t)at.n * l.out[0] + (inside ? p : 0)) * l.out[1] * l.c;
    stage_row<T, F>(l, stager, to,
                    {d_y, at.column / F::stride - met<F>::before, inside ? l.out[1] : 0, slot.wide});
    if (p <= at.first) return;
    to += slot.d_size;
    for (int j = 0; j < F::stride; j++, to += slot.x_size) {
        int row = (p - 1) * F::stride + j;
        inside = row < l.in[0];
        const T *x = (const T *)o.from + ((int64_t)at.n * l.in[0] + (inside ? row : 0)) * l.in[1] * l.c;
        stage_row<T, F>(l, stager, to, {x, at.column, inside ? l.in[1] : 0, l.down * F::columns});
    }
}

template <class F>
__device__ static inline depthwise_steps backward_steps(const depthwise_layout &, const depthwise_walk &at)
{
    return {at.first - met<F>::before, at.last + 1};
}

/* A thread's sums. */
template <class F> struct backward_sums {
    float weight[F::taps][F::channels], d_x[2][F::channels];
};

/* Row j of the rows of x at a row of y: adds to d_x and to the sums of the weight gradient. */
template <class F>
__device__ static inline void meet(int j, const float d[met<F>::rows][met<F>::columns][F::channels],
                                   const float x[F::columns][F::channels],
                                   const float w[F::taps][F::channels], float d_x[F::columns][F::channels],
                                   float sum[F::taps][F::channels])
{
    constexpr int before = met<F>::before;
#pragma unroll
    for (int r = 0; r < F::k; r++)
#pragma unroll
        for (int s = 0; s < F::k; s++)
#pragma unroll
            for (int i = 0; i < F::columns; i++) {
                if ((j + F::pad + r) % F::stride != 0 || (i + F::pad + s) % F::stride != 0) continue;
                const int a = (j + F::pad - r) / F::stride + before;
                const int b = (i + F::pad - s) / F::stride + before;
                add_product<F>(d_x[i], d[a][b], w[r * F::k + s]);
                add_product<F>(sum[r * F::k + s], x[i], d[a][b]);
            }
}

template <class T, class F>
__device__ static inline void next_row(float d[met<F>::rows][met<F>::columns][F::channels], const T *from,
                                       int pitch)
{
#pragma unroll
    for (int a = 0; a + 1 < met<F>::rows; a++)
#pragma unroll
        for (int i = 0; i < met<F>::columns; i++)
#pragma unroll
            for (int v = 0; v < F::channels; v++) d[a][i][v] = d[a + 1][i][v];
    read_pixels<T, F, met<F>::columns>(d[met<F>::rows - 1], from, pitch);
}

/* Passes d_x back through the relu6 that is applied to x. */
template <class F>
__device__ static inline void pass_clipped(float d_x[F::columns][F::channels],
                                           const float x[F::columns][F::channels])
{
#pragma unroll
    for (int i = 0; i < F::columns; i++)
#pragma unroll
        for (int v = 0; v < F::channels; v++) d_x[i][v] = x[i][v] <= 0 || x[i][v] >= 6 ? 0 : d_x[i][v];
}

template <class T, class F, bool clips>
__device__ static void meet_walks(const depthwise_layout &l, const depthwise_operands &o,
                                  const depthwise_thread &t, const T *memory, depthwise_ring *ring,
                                  backward_sums<F> *sums)
{
    backward_slot<F> slot = slot_of<F>(l);
    const T *own = memory + t.strip * (F::columns / F::stride) * t.pitch + t.lane * F::channels;
    int apart = slot.d_size + t.strip * (F::columns - F::columns / F::stride) * t.pitch;
    depthwise_place place = {0, 0};
    float w[F::taps][F::channels];
    load_weights<T, F>(w, (const T *)o.weight, t.channel, false);
    for (int index = blockIdx.y; index < l.walks; index += gridDim.y) {
        depthwise_walk at = walk_at(l, index, l.out[0], F::columns);
        int column = at.column + t.strip * F::columns, width = t.any ? l.in[1] : 0, p = at.first;
        int row = at.first * F::stride;
        T *to = (T *)o.to + (((int64_t)at.n * l.in[0] + row) * l.in[1] + column) * l.c + t.channel;
        float d[met<F>::rows][met<F>::columns][F::channels] = {};
#pragma unroll
        for (int i = 0; i <= met<F>::before; i++) {
            barrier_wait(&ring->full[place.slot], place.parity);
            next_row<T, F>(d, own + place.slot * slot.size, t.pitch);
            ring_release(ring, &place, l.slots);
        }
#pragma unroll (met<F>::rows)
        for (; p < at.last; p++) {
            barrier_wait(&ring->full[place.slot], place.parity);
            const T *from = own + place.slot * slot.size;
            next_row<T, F>(d, from, t.pitch);
#pragma unroll
            for (int j = 0; j < F::stride; j++, row++, to += (int64_t)l.in[1] * l.c) {
                float x[F::columns][F::channels], d_x[F::columns][F::channels] = {};
                read_pixels<T, F, F::columns, clips>(x, from + apart + j * slot.x_size, t.pitch);
                if (j == F::stride - 1) ring_release(ring, &place, l.slots);
                meet<F>(j, d, x, w, d_x, sums->weight);
                if (clips) pass_clipped<F>(d_x, x);
                if (row < l.in[0]) store_strip<T, F>(to, l.c, column, width, d_x, clips ? sums->d_x : NULL);
            }
        }
    }
}

template <class T, class F, bool clips>
__global__ void
__launch_bounds__(depthwise_backward_threads(F::columns), depthwise_backward_blocks(F::columns))
backward_kernel(depthwise_layout l, depthwise_operands o)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ depthwise_ring ring;
    depthwise_thread thread = depthwise_thread_of<F>(l);
    backward_sums<F> sums = {};
    ring_open(l, &ring);
    if (is_stager(l))
        stage_walks<T, F, backward_steps<F>, stage_step<T, F>>(l, o, l.out[0], slot_of<F>(l).size,
                                                               (T *)memory, &ring);
    else meet_walks<T, F, clips>(l, o, thread, (const T *)memory, &ring, &sums);
    let_next_begin();
    float *shares = o.shares + (int64_t)blockIdx.y * l.c * F::taps;
#pragma unroll
    for (int tap = 0; tap < F::taps; tap++)
        write_share<F>(l, sums.weight[tap], (float *)memory, shares + tap, F::taps);
    if (clips)
        write_share<F>(l, sums.d_x[0], (float *)memory,
                       o.shares + ((int64_t)gridDim.y * F::taps + blockIdx.y) * l.c, 1);
}

depthwise_kernel depthwise_backward_kernel(const struct conv_call *p, const struct depthwise_tile *tile)
{
    return with_depthwise_form(p, tile, [&](auto type, auto form) -> depthwise_kernel {
        using T = decltype(type);
        using F = decltype(form);
        constexpr bool wide = F::columns > 4 && F::columns % 2 == (F::stride == 1);
        constexpr bool known = F::channels == 2 && (F::columns == 4 || wide);
        if constexpr (F::k != 3 || sizeof(T) != 2 || !known) return NULL;
        else return conv_clips(p->call) ? backward_kernel<T, F, true> : backward_kernel<T, F, false>;
    });
}
