/* conv_depthwise_weights.cu: each block's share of a depthwise convolution's gradient of weights.
 *
 * Steps are those of y from x; step p also brings row p + active - 1 of d_y. */
#include "kernels/conv/conv_depthwise.cuh"
#include "kernels/support/dependent_launch.cuh"

/* A slot holds a row of d_y, then the rows of x. */
template <class F> struct weights_slot {
    int wide, d_size, row_size, size;
};

template <class F> __device__ static inline weights_slot<F> slot_of(const depthwise_layout &l)
{
    int pitch = l.across * F::channels, wide = (l.down * F::columns - 1) * F::stride + F::k;
    int d_size = l.down * F::columns * pitch, row_size = wide * pitch;
    return {wide, d_size, row_size, d_size + F::stride * row_size};
}

template <class T, class F>
__device__ static inline void stage_step(const depthwise_layout &l, const depthwise_stager &stager,
                                         const depthwise_walk &at, const depthwise_operands &o, int p, T *to)
{
    weights_slot<F> slot = slot_of<F>(l);
    int d_row = p + F::active - 1;
    bool own = d_row < at.last;                        /* rows beyond the walk belong to another one */
    const T *d_y = (const T *)o.d_y + ((int64_t)at.n * l.out[0] + (own ? d_row : 0)) * l.out[1] * l.c;
    stage_row<T, F>(l, stager, to, {d_y, at.column, own ? l.out[1] : 0, l.down * F::columns});
    if (p < steps_inside<F>(l, at).first) return;
    to += slot.d_size;
    for (int j = 0; j < F::stride; j++, to += slot.row_size) {
        int row = row_of<F>(p) + j;
        bool inside = (unsigned)row < (unsigned)l.in[0];
        const T *x = (const T *)o.from + ((int64_t)at.n * l.in[0] + (inside ? row : 0)) * l.in[1] * l.c;
        stage_row<T, F>(l, stager, to,
                        {x, at.column * F::stride - F::pad, inside ? l.in[1] : 0, slot.wide});
    }
}

template <class F>
__device__ static inline depthwise_steps weights_steps(const depthwise_layout &l, const depthwise_walk &at)
{
    return {at.first - (F::active - 1), steps_inside<F>(l, at).end};
}

/* d[a] is row p + a of d_y. */
template <class T, class F>
__device__ static void add_walks(const depthwise_layout &l, const depthwise_thread &t, const T *memory,
                                 depthwise_ring *ring, float sum[F::taps][F::channels])
{
    const float zero[F::channels] = {};
    weights_slot<F> slot = slot_of<F>(l);
    const T *own = memory + t.strip * F::columns * t.pitch + t.lane * F::channels;
    int apart = slot.d_size + t.strip * F::columns * (F::stride - 1) * t.pitch;
    depthwise_place place = {0, 0};
    for (int index = blockIdx.y; index < l.walks; index += gridDim.y) {
        depthwise_walk at = walk_at(l, index, l.out[0], F::columns);
        float d[F::active][F::columns][F::channels] = {};
        int p = weights_steps<F>(l, at).first;
        int first = steps_inside<F>(l, at).first, end = steps_inside<F>(l, at).end;
#pragma unroll 1
        for (; p < first && p < end; p++) {
            barrier_wait(&ring->full[place.slot], place.parity);
            read_pixels<T, F, F::columns>(d[F::active - 1], own + place.slot * slot.size, t.pitch);
            ring_release(ring, &place, l.slots);
            move_up<F, F::active, 1>(d, zero);
        }
#pragma unroll (F::active)
        for (; p < end; p++) {
            barrier_wait(&ring->full[place.slot], place.parity);
            const T *from = own + place.slot * slot.size;
            read_pixels<T, F, F::columns>(d[F::active - 1], from, t.pitch);
#pragma unroll
            for (int j = 0; j < F::stride; j++) {
                float pixel[F::wide][F::channels];
                read_pixels<T, F, F::wide>(pixel, from + apart + j * slot.row_size, t.pitch);
                if (j == F::stride - 1) ring_release(ring, &place, l.slots);
#pragma unroll
                for (int a = 0; a < F::active; a++) {
                    const int r = F::k - F::stride + j - F::stride * a;
                    if (r < 0) continue;
#pragma unroll
                    for (int s = 0; s < F::k; s++)
#pragma unroll
                        for (int i = 0; i < F::columns; i++)
                            add_product<F>(sum[r * F::k + s], pixel[i * F::stride + s], d[a][i]);
                }
            }
            move_up<F, F::active, 1>(d, zero);
        }
    }
}

template <class T, class F>
__global__ void __launch_bounds__(F::threads, F::blocks)
weights_kernel(depthwise_layout l, depthwise_operands o)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ depthwise_ring ring;
    depthwise_thread thread = depthwise_thread_of<F>(l);
    float sum[F::taps][F::channels] = {};
    ring_open(l, &ring);
    if (is_stager(l))
        stage_walks<T, F, weights_steps<F>, stage_step<T, F>>(l, o, l.out[0], slot_of<F>(l).size, (T *)memory,
                                                              &ring);
    else add_walks<T, F>(l, thread, (const T *)memory, &ring, sum);
    let_next_begin();
    float *shares = o.shares + (int64_t)blockIdx.y * l.c * F::taps;
#pragma unroll
    for (int tap = 0; tap < F::taps; tap++)
        write_share<F>(l, sum[tap], (float *)memory, shares + tap, F::taps);
}

depthwise_kernel depthwise_weights_kernel(const struct conv_call *p, const struct depthwise_tile *tile)
{
    return with_depthwise_form(p, tile, [&](auto type, auto form) -> depthwise_kernel {
        using F = decltype(form);
        if constexpr (F::k == 7 || F::columns == 8) return NULL;       /* 7x7: 98 sums a thread */
        else return weights_kernel<decltype(type), F>;
    });
}
