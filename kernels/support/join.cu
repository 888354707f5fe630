#include "kernels/support/join.cuh"

#include "kernels/support/channel_sums.cuh"
#include "kernels/support/sweep.cuh"

using namespace batchnorm_parts;

/* It goes backward through memory: the product before it wrote the end last, so that is in the cache, and the
 * product after it reads the beginning first. */
template <class T, int width, enum act act, enum side by, bool two>
__global__ void __launch_bounds__(threads, 2)
    join_kernel(struct gradients<T> g, struct slopes slopes, struct sweep s, float *parts)
{
    __shared__ tally_room<width> shared;
    sweep_position p = sweep_position_of<width>(s);
    tally<width> t = {};
    for (int64_t tile = s.tiles - 1 - blockIdx.x; p.here && tile >= 0; tile -= gridDim.x) {
        tile_rows rows = rows_of(s, p, tile);
        cell<T, width> d_y[unroll], more[unroll];
        side_cell<T, width, by> sides[unroll];
        load_rows(d_y, g.d_y, rows);
        if (two) load_rows(more, g.d_y_more, rows);
        if (act != ACT_NONE) load_sides(sides, g, rows);
#pragma unroll
        for (int j = 0; j < unroll; j++) {
            if (j >= rows.count) continue;
            float dz[width];
#pragma unroll
            for (int i = 0; i < width; i++) {
                dz[i] = two ? to_float(from_float<T>(d_y[j].get(i) + more[j].get(i))) : d_y[j].get(i);
                if (act != ACT_NONE) dz[i] = pass_back<act>(slopes, sides[j].get(i), dz[i]);
                t.first[i] += dz[i];
            }
            if (g.d_residual) store<T, width>(g.d_residual + rows[j], dz);
        }
    }
    merge_lanes<merge_sums>(t, s.span, s.lanes, shared);
    if (!p.here || p.lane != 0) return;
#pragma unroll
    for (int i = 0; i < width; i++) parts[(int64_t)blockIdx.x * s.channels + p.channel + i] = t.first[i];
}

/* The arguments of a join's sweeps. */
struct joining {
    const struct call *call;
    const struct join *join;
    struct slopes slopes;
    float *parts;
};

template <class T, enum act act, enum side by, bool two>
static enum status join_sweep(const struct joining &j)
{
    constexpr int width = pack<T>::count;
    struct sweep s = sweep_open(&j.join->d_y, width);
    dim3 grid = sweep_grid(j.call, &s, 2);
    struct gradients<T> g = {.y = (const T *)j.join->y, .d_y = (const T *)j.join->d_y.data,
                             .d_y_more = (const T *)j.join->d_y_more, .mask = j.join->mask,
                             .d_residual = (T *)j.join->dz};
    join_kernel<T, width, act, by, two><<<grid, threads, 0, stream_of(j.call)>>>(g, j.slopes, s, j.parts);
    TRY(launched(j.call));
    return channel_sum_shares(j.call, j.join->sums, j.parts, (int)grid.x, (int)s.channels);
}

template <class T, bool two> static enum status join_by(const struct joining &j, int activation)
{
    if (activation == ACTIVATION_NONE) return join_sweep<T, ACT_NONE, SIDE_Y, two>(j);
    if (activation != ACTIVATION_RELU) return join_sweep<T, ACT_OTHER, SIDE_Y, two>(j);
    if constexpr (sizeof(T) == 2)
        if (j.join->mask) return join_sweep<T, ACT_RELU, SIDE_MASK, two>(j);
    return join_sweep<T, ACT_RELU, SIDE_Y, two>(j);
}

size_t join_workspace(const struct tensor *d_y)
{
    struct sweep s = sweep_open(d_y, (int)(16 / dtype_bytes(d_y->dtype)));
    return (size_t)s.channels * sizeof(float) * (size_t)sweep_height(&s, blocks_max);
}

enum status join_run(const struct call *call, const struct batchnorm *activation, const struct join *join,
                     float *parts)
{
    struct joining j = {call, join, slopes_of(activation), parts};
    return with_type(join->d_y.dtype, [&](auto type) {
        using T = decltype(type);
        return join->d_y_more ? join_by<T, true>(j, activation->activation)
                              : join_by<T, false>(j, activation->activation);
    });
}
