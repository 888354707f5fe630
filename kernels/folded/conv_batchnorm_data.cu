/* conv_batchnorm_data.cu: tiles of dz (s W); a tile of a, which d_a replaces, is multiplied by Q, whose rows
 * follow those of s W in `factors`. Q is stored multiplied by a power of two: so is what its product is added
 * to, and the sum is divided by that. */
#include "kernels/folded/conv_batchnorm_data.cuh"

#include "kernels/support/columns.cuh"
#include "kernels/support/tiles.cuh"

using namespace tiles;

constexpr int group_count = 2;

struct data_problem : problem {
    const void *bias;
    float scale;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* d + a Q + q, all multiplied by the scale. */
template <class T, int columns>
__device__ static inline void add_correction(const block<group_count, columns> &b, const data_problem &p,
                                             const corner &c, const uint8_t *tile, float (&d)[columns / 2])
{
    const uint32_t *bias = (const uint32_t *)p.bias + c.pair;
#pragma unroll
    for (int j = 0; j < columns / 8; j++) {
        float2 q = unpack(bias[4 * j], T());
#pragma unroll
        for (int i = 0; i < 4; i++) d[4 * j + i] = (d[4 * j + i] + (i % 2 ? q.y : q.x)) * p.scale;
    }
    for (int k = 0; k < p.own_chunks; k++)
        multiply_chunk<T>(d, tile + k * side_bytes, b.weight + (p.chunks + k) * tile_bytes(columns), true);
    finish_products(d);
    b.synchronise_group();
}

/* Writes d_a over a, and adds up both sums. */
template <class T, int columns>
__device__ static inline void replace_tile(const corner &c, float scale, uint8_t *tile,
                                           const float (&d)[columns / 2], float (&sums)[2][columns / 4])
{
    float unit = 1 / scale;
#pragma unroll
    for (int j = 0; j < columns / 8; j++)
#pragma unroll
        for (int below = 0; below < 2; below++) {
            uint32_t *at = (uint32_t *)(tile + c.offset(j, c.row + 8 * below));
            float2 a = unpack(*at, T());
            *at = pack_pair(d[4 * j + 2 * below] * unit, d[4 * j + 2 * below + 1] * unit, T());
            float2 stored = unpack(*at, T());
            sums[0][2 * j] += a.x != 0 ? stored.x : 0;
            sums[0][2 * j + 1] += a.y != 0 ? stored.y : 0;
            sums[1][2 * j] = fmaf(stored.x, a.x, sums[1][2 * j]);
            sums[1][2 * j + 1] = fmaf(stored.y, a.y, sums[1][2 * j + 1]);
        }
}

template <class T, int columns>
__device__ static void make_tiles(const block<group_count, columns> &b, const data_problem &p)
{
    corner c;
    float sums[2][columns / 4] = {};
    ring chunks = {0, 0}, tiles = {0, 0};
    barrier_wait(&b.barrier->weight, 0);
    for (int64_t tile = b.first; tile < b.end; tile += b.step, tiles.next(p.tiles)) {
        float d[columns / 2];
        multiply_tile<T>(b, chunks, d);
        barrier_wait(&b.barrier->in[b.g][tiles.at], tiles.phase);
        uint8_t *replaced = b.tile_at(tiles.at);
        add_correction<T>(b, p, c, replaced, d);
        replace_tile<T, columns>(c, p.scale, replaced, d, sums);
        show_stored();
        barrier_arrive(&b.barrier->out[b.g][tiles.at]);
    }
    if (p.parts) leave_sums(b, sums);
}

#endif

template <class T, int columns>
__global__ void __launch_bounds__(threads(group_count), 1)
    conv_batchnorm_data_kernel(const __grid_constant__ CUtensorMap dz,
                               const __grid_constant__ CUtensorMap factors,
                               const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap d_a,
                               const data_problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    share_work<group_count, columns>(
        p, [&](const auto &b) { make_tiles<T>(b, p); },
        [&](const auto &b) { load_factors(b, &dz, &factors); },
        [&](const auto &b) {
            exchange_tiles(b, &d_a, [&](int64_t tile, int i) { load_tile(b, &a, tile, i); });
        });
#endif
}

/* Calls work(kernel) with the one for the type and the channels. */
template <class Work> static auto with_kernel(const struct folded_data *of, Work work)
{
    auto kernel = of->dtype == F16 ? conv_batchnorm_data_kernel<__half, 64>
                                   : conv_batchnorm_data_kernel<__nv_bfloat16, 64>;
    if (of->channels == 128)
        kernel = of->dtype == F16 ? conv_batchnorm_data_kernel<__half, 128>
                                  : conv_batchnorm_data_kernel<__nv_bfloat16, 128>;
    return work(kernel);
}

static data_problem data_problem_of(const struct folded_data *of, const struct cuda_facts *facts,
                                    size_t *shared)
{
    data_problem p = {};
    p.rows = of->pixels;
    p.columns = of->channels;
    p.chunks = of->filters / tiles::chunk;
    p.own_chunks = of->channels / tiles::chunk;
    p.bias = of->bias;
    p.scale = of->scale;
    p.parts = of->sums ? of->parts : NULL;
    *shared = of->channels == 64 ? rings_fit<group_count, 64>(&p, facts->shared_bytes)
                                 : rings_fit<group_count, 128>(&p, facts->shared_bytes);
    return p;
}

bool folded_data_fits(const struct folded_data *of, struct device *device)
{
    const struct cuda_facts *facts = cuda_facts(device);
    size_t shared;
    bool whole = (of->channels == 64 || of->channels == 128) && of->filters % tiles::chunk == 0 &&
                 of->pixels < 2e9;
    return whole && dtype_bytes(of->dtype) == 2 && facts->capability == 90 &&
           data_problem_of(of, facts, &shared).tiles > 0 &&
           with_kernel(of, [](auto kernel) { return is_compiled(kernel); });
}

size_t folded_data_workspace(const struct folded_data *of, struct device *device)
{
    return 2 * (size_t)of->channels * (size_t)cuda_facts(device)->multiprocessors * sizeof(float);
}

enum status folded_data_run(const struct call *call, const struct folded_data *of)
{
    const struct cuda_facts *facts = cuda_facts(call->device);
    size_t shared;
    data_problem p = data_problem_of(of, facts, &shared);
    CUtensorMap dz, factors, a, d_a;
    if (!map_matrix(&dz, of->dtype, of->dz, p.rows, of->filters) ||
        !map_matrix(&factors, of->dtype, of->factors, of->filters + of->channels, of->channels) ||
        !map_matrix(&a, of->dtype, of->a, p.rows, of->channels) ||
        !map_matrix(&d_a, of->dtype, of->d_a, p.rows, of->channels))
        return fail(NO_DEVICE, "the driver does not describe a convolution's tensors");
    unsigned blocks = (unsigned)facts->multiprocessors;
    TRY(with_kernel(of, [&](auto kernel) {
        TRY(grant_shared(call, kernel));
        kernel<<<blocks, threads(group_count), shared, stream_of(call)>>>(dz, factors, a, d_a, p);
        return launched(call);
    }));
    return of->sums ? columns_finish(call, {of->parts, (int)blocks, 1, 2 * of->channels}, of->sums) : OK;
}
