/* conv_depthwise_forward.cu: y of a depthwise convolution from x, or with turned weights d_x from d_y at
 * stride 1. */
#include "kernels/conv/conv_depthwise.cuh"
#include "kernels/support/dependent_launch.cuh"

/* Pixels of a row of x that a block reads. */
template <class F> __device__ static inline int block_wide(const depthwise_layout &l)
{
    return (l.down * F::columns - 1) * F::stride + F::k;
}

template <class T, class F>
__device__ static inline void stage_step(const depthwise_layout &l, const depthwise_stager &stager,
                                         const depthwise_walk &at, const depthwise_operands &o, int p, T *to)
{
    const T *image = (const T *)o.from + (int64_t)at.n * l.in[0] * l.in[1] * l.c;
#pragma unroll
    for (int j = 0; j < F::stride; j++, to += block_wide<F>(l) * l.across * F::channels) {
        int row = row_of<F>(p) + j;
        bool inside = (unsigned)row < (unsigned)l.in[0];
        stage_row<T, F>(l, stager, to,
                        {image + (int64_t)(inside ? row : 0) * l.in[1] * l.c,
                         at.column * F::stride - F::pad, inside ? l.in[1] : 0, block_wide<F>(l)});
    }
}

/* sum[a] is row p + a of y. */
template <class T, class F, bool summed, bool clips>
__device__ static void convolve_walks(const depthwise_layout &l, const depthwise_operands &o,
                                      const depthwise_thread &t, const T *memory, depthwise_ring *ring,
                                      float total[2][F::channels])
{
    int row_size = block_wide<F>(l) * t.pitch;
    const T *own = memory + t.strip * F::columns * F::stride * t.pitch + t.lane * F::channels;
    depthwise_place place = {0, 0};
    float w[F::taps][F::channels], bias[F::channels] = {};
    load_weights<T, F>(w, (const T *)o.weight, t.channel, o.turned);
#pragma unroll
    for (int v = 0; v < F::channels; v++)
        if (o.bias) bias[v] = to_float(((const T *)o.bias)[t.channel + v]);
    for (int index = blockIdx.y; index < l.walks; index += gridDim.y) {
        depthwise_walk at = walk_at(l, index, l.out[0], F::columns);
        int column = at.column + t.strip * F::columns, width = t.any ? l.out[1] : 0;
        T *to = (T *)o.to + (((int64_t)at.n * l.out[0] + at.first) * l.out[1] + column) * l.c + t.channel;
        float sum[F::active][F::columns][F::channels];
        move_up<F, F::active, F::active>(sum, bias);
        int p = steps_inside<F>(l, at).first, end = steps_inside<F>(l, at).end;
#pragma unroll (F::active)
        for (; p < end; p++) {
            barrier_wait(&ring->full[place.slot], place.parity);
            const T *from = own + place.slot * F::stride * row_size;
#pragma unroll
            for (int j = 0; j < F::stride; j++) {
                float pixel[F::wide][F::channels];
                read_pixels<T, F, F::wide, clips>(pixel, from + j * row_size, t.pitch);
                if (j == F::stride - 1) ring_release(ring, &place, l.slots);
#pragma unroll
                for (int a = 0; a < F::active; a++) {
                    const int r = F::k - F::stride + j - F::stride * a;
                    if (r < 0) continue;
#pragma unroll
                    for (int s = 0; s < F::k; s++)
#pragma unroll
                        for (int i = 0; i < F::columns; i++)
                            add_product<F>(sum[a][i], pixel[i * F::stride + s], w[r * F::k + s]);
                }
            }
            if (p >= at.first) {
                store_strip<T, F>(to, l.c, column, width, sum[0], summed ? total : NULL);
                to += (int64_t)l.out[1] * l.c;
            }
            move_up<F, F::active, 1>(sum, bias);
        }
#pragma unroll 1
        for (; p < at.last; p++) {                     /* rows of x below are outside the image */
            if (p >= at.first) {
                store_strip<T, F>(to, l.c, column, width, sum[0], summed ? total : NULL);
                to += (int64_t)l.out[1] * l.c;
            }
            move_up<F, F::active, 1>(sum, bias);
        }
    }
}

template <class T, class F, bool summed, bool clips>
__global__ void __launch_bounds__(F::threads, F::blocks)
forward_kernel(depthwise_layout l, depthwise_operands o)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ depthwise_ring ring;
    depthwise_thread thread = depthwise_thread_of<F>(l);
    float total[2][F::channels] = {};
    ring_open(l, &ring);
    if (is_stager(l))
        stage_walks<T, F, steps_inside<F>, stage_step<T, F>>(l, o, l.out[0],
                                                             F::stride * block_wide<F>(l) * thread.pitch,
                                                             (T *)memory, &ring);
    else convolve_walks<T, F, summed, clips>(l, o, thread, (const T *)memory, &ring, total);
    if constexpr (summed) {
        let_next_begin();
        for (int i = 0; i < 2; i++)
            write_share<F>(l, total[i], (float *)memory, o.shares + ((int64_t)blockIdx.y * 2 + i) * l.c, 1);
    }
}

depthwise_kernel depthwise_forward_kernel(const struct conv_call *p, const struct depthwise_tile *tile)
{
    bool sums = conv_gives_moments(p->call);
    return with_depthwise_form(p, tile, [&](auto type, auto form) -> depthwise_kernel {
        using T = decltype(type);
        using F = decltype(form);
        if constexpr (F::columns == 8) {
            return NULL;
        } else {
            if constexpr (F::k == 3 && sizeof(T) == 2)
                if (conv_clips(p->call))
                    return sums ? forward_kernel<T, F, true, true> : forward_kernel<T, F, false, true>;
            return sums ? forward_kernel<T, F, true, false> : forward_kernel<T, F, false, false>;
        }
    });
}
