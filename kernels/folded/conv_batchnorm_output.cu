/* conv_batchnorm_output.cu: tiles of a (s W)', to which the residual's, which y replaces, are added. */
#include "kernels/folded/conv_batchnorm_output.cuh"

#include "kernels/support/tiles.cuh"

using namespace tiles;

constexpr int group_count = 2, tile_columns = 128;
constexpr int channels_max = 256;        /* with more, B leaves little room for rings: products are faster */

struct output_problem : problem {
    const void *bias;
    uint8_t *mask;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int mask_words = tile_columns / 32;

/* Writes y over the residual; `bits` gets those of the thread's numbers. */
template <class T>
__device__ static inline void relu_tile(const corner &c, const void *bias, uint8_t *tile,
                                        const float (&d)[tile_columns / 2], uint32_t (&bits)[2][mask_words])
{
#pragma unroll
    for (int j = 0; j < tile_columns / 8; j++) {
        float2 b = unpack(((const uint32_t *)bias)[4 * j + c.pair], T());
#pragma unroll
        for (int below = 0; below < 2; below++) {
            uint32_t *at = (uint32_t *)(tile + c.offset(j, c.row + 8 * below));
            float2 z = unpack(*at, T());
            z.x += d[4 * j + 2 * below] + b.x;
            z.y += d[4 * j + 2 * below + 1] + b.y;
            uint32_t y = pack_pair(z.x <= 0 ? 0 : z.x, z.y <= 0 ? 0 : z.y, T());
            *at = y;
            uint32_t two = ((y & 0xffff) != 0) | ((y >> 16) != 0) << 1;
            if (j % 4 == 0) bits[below][j / 4] = 0;
            bits[below][j / 4] |= two << (j % 4 * 8 + c.pair * 2);
        }
    }
}

/* Four threads have the bits of two rows: each writes a word of both. */
__device__ static inline void store_mask(const output_problem &p, const corner &c, int64_t row, int column,
                                         uint32_t (&bits)[2][mask_words])
{
#pragma unroll
    for (int below = 0; below < 2; below++) {
        uint32_t mine = 0;
#pragma unroll
        for (int i = 0; i < mask_words; i++) {
            uint32_t word = bits[below][i];
            word |= __shfl_xor_sync(~0u, word, 1);
            word |= __shfl_xor_sync(~0u, word, 2);
            if (i == c.pair) mine = word;
        }
        int64_t at = row + c.row + 8 * below;
        if (at < p.rows) *(uint32_t *)(p.mask + (at * p.columns + column) / 8 + c.pair * 4) = mine;
    }
}

template <class T>
__device__ static void write_tiles(const block<group_count, tile_columns> &b, const output_problem &p)
{
    corner c;
    ring chunks = {0, 0}, tiles = {0, 0};
    barrier_wait(&b.barrier->weight, 0);
    for (int64_t tile = b.first; tile < b.end; tile += b.step, tiles.next(p.tiles)) {
        float d[tile_columns / 2];
        uint32_t bits[2][mask_words];
        multiply_tile<T, true>(b, chunks, d);
        barrier_wait(&b.barrier->in[b.g][tiles.at], tiles.phase);
        relu_tile<T>(c, (const T *)p.bias + b.column, b.tile_at(tiles.at), d, bits);
        show_stored();
        barrier_arrive(&b.barrier->out[b.g][tiles.at]);
        if (p.mask) store_mask(p, c, tile * tile_rows, b.column, bits);
    }
}

#endif

template <class T>
__global__ void __launch_bounds__(threads(group_count), 1)
    conv_batchnorm_output_kernel(const __grid_constant__ CUtensorMap a,
                                 const __grid_constant__ CUtensorMap factors,
                                 const __grid_constant__ CUtensorMap residual,
                                 const __grid_constant__ CUtensorMap y, const output_problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    share_work<group_count, tile_columns>(
        p, [&](const auto &b) { write_tiles<T>(b, p); },
        [&](const auto &b) { load_factors<true>(b, &a, &factors); },
        [&](const auto &b) {
            exchange_tiles(b, &y, [&](int64_t tile, int i) { load_tile(b, &residual, tile, i); });
        });
#endif
}

template <class Work> static auto with_kernel(const struct folded_output *of, Work work)
{
    return work(of->dtype == F16 ? conv_batchnorm_output_kernel<__half>
                                 : conv_batchnorm_output_kernel<__nv_bfloat16>);
}

static output_problem output_problem_of(const struct folded_output *of, const struct cuda_facts *facts,
                                        size_t *shared)
{
    output_problem p = {};
    p.rows = of->pixels;
    p.columns = of->filters;
    p.chunks = of->channels / chunk;
    p.bias = of->bias;
    p.mask = of->mask;
    *shared = rings_fit<group_count, tile_columns>(&p, facts->shared_bytes);
    return p;
}

bool folded_output_fits(const struct folded_output *of, struct device *device)
{
    const struct cuda_facts *facts = cuda_facts(device);
    size_t shared;
    bool whole = of->filters % tile_columns == 0 && of->filters / tile_columns <= facts->multiprocessors &&
                 of->channels % chunk == 0 && of->channels <= channels_max && of->pixels < 2e9;
    return whole && dtype_bytes(of->dtype) == 2 && facts->capability == 90 &&
           output_problem_of(of, facts, &shared).tiles > 0 &&
           with_kernel(of, [](auto kernel) { return is_compiled(kernel); });
}

enum status folded_output_run(const struct call *call, const struct folded_output *of)
{
    const struct cuda_facts *facts = cuda_facts(call->device);
    size_t shared;
    output_problem p = output_problem_of(of, facts, &shared);
    int wide = p.columns / tile_columns;
    unsigned blocks = (unsigned)(facts->multiprocessors / wide * wide);
    CUtensorMap a, factors, residual, y;
    if (!map_matrix(&a, of->dtype, of->a, p.rows, of->channels) ||
        !map_matrix(&factors, of->dtype, of->factors, of->filters, of->channels) ||
        !map_matrix(&residual, of->dtype, of->residual, p.rows, of->filters) ||
        !map_matrix(&y, of->dtype, of->y, p.rows, of->filters))
        return fail(NO_DEVICE, "the driver does not describe a convolution's tensors");
    return with_kernel(of, [&](auto kernel) {
        TRY(grant_shared(call, kernel));
        kernel<<<blocks, threads(group_count), shared, stream_of(call)>>>(a, factors, residual, y, p);
        return launched(call);
    });
}
