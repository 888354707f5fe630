#include "kernels/support/chunk.cuh"
#include "kernels/support/channel_sums.cuh"
#include "kernels/support/sweep.cuh"

using namespace batchnorm_parts;

#define THREADS 256

/* One input's channels, in words: their offset in a pixel of the whole, and their number. */
struct concat_part {
    void *data;
    int64_t first, words;
};
struct concat_parts {
    int64_t pixels, pitch;     /* pitch: words from one of the whole's pixels to the next */
    int count;
    struct concat_part part[OP_MAX_INPUTS];
};

/* Copies part blockIdx.y to the whole, or from it. Threads are words x pixels. */
template <bool join, class W>
__global__ void __launch_bounds__(THREADS) concat_kernel(W *whole, struct concat_parts parts)
{
    const struct concat_part &part = parts.part[blockIdx.y];
    W *data = (W *)part.data;
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t pixel = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; pixel < parts.pixels; pixel += step)
        for (int64_t word = threadIdx.x; word < part.words; word += blockDim.x) {
            W *there = whole + pixel * parts.pitch + part.first + word;
            W *here = data + pixel * part.words + word;
            if (join) *there = *here;
            else *here = *there;
        }
}

/* The parts that exist, in bytes. */
static struct concat_parts parts_of(const struct tensor *whole, const struct tensor *part,
                                    const struct tensor *shape, int count)
{
    int64_t size = (int64_t)dtype_bytes(whole->dtype), first = 0;
    struct concat_parts parts = {.pixels = whole->shape.n * whole->shape.h * whole->shape.w,
                                 .pitch = whole->shape.c * size};
    for (int i = 0; i < count; i++) {
        int64_t bytes = shape[i].shape.c * size;
        if (part[i].data) parts.part[parts.count++] = {part[i].data, first, bytes};
        first += bytes;
    }
    return parts;
}

/* The largest word, up to 16 bytes, of which all parts are multiples. */
static int64_t word_bytes(const struct concat_parts *parts)
{
    int64_t bits = 16 | parts->pitch;
    for (int i = 0; i < parts->count; i++) bits |= parts->part[i].first | parts->part[i].words;
    return bits & -bits;
}

static int64_t parts_in_words(struct concat_parts *parts, int64_t bytes)
{
    int64_t widest = 0;
    parts->pitch /= bytes;
    for (int i = 0; i < parts->count; i++) {
        parts->part[i].first /= bytes;
        parts->part[i].words /= bytes;
        if (parts->part[i].words > widest) widest = parts->part[i].words;
    }
    return widest;
}

template <bool join>
static enum status concat_copy(const struct call *call, const struct tensor *whole, const struct tensor *part)
{
    struct concat_parts parts = parts_of(whole, part, call->x, call->x_count);
    if (parts.count == 0 || parts.pixels == 0) return OK;
    int64_t bytes = word_bytes(&parts), widest = parts_in_words(&parts, bytes);
    int across = power_up(widest, THREADS);
    dim3 threads(across, THREADS / across);
    dim3 blocks(grid_of(call, parts.pixels * across, THREADS, 4), parts.count);
    return with_word((size_t)bytes, [&](auto word) {
        using W = decltype(word);
        concat_kernel<join><<<blocks, threads, 0, stream_of(call)>>>((W *)whole->data, parts);
        return launched(call);
    });
}

/* The part that has a pack of the whole's channels, and the index of the pack's first element in it. */
struct concat_source {
    const struct concat_part *part;
    int64_t at;
};

/* `channel` is an index in the whole; parts are in elements. */
__device__ static inline concat_source source_of(const struct concat_parts &parts, int64_t channel)
{
    int i = 0;
    while (i + 1 < parts.count && channel >= parts.part[i + 1].first) i++;
    return {&parts.part[i], channel - parts.part[i].first};
}

/* Copies, and adds up what it copies and its squares: sums[blockIdx.x][sums, squares][channel]. */
template <class T, int width>
__global__ void __launch_bounds__(threads, 4)
    concat_sums_kernel(T *whole, const __grid_constant__ struct concat_parts parts, struct sweep s,
                       float *sums)
{
    __shared__ tally_room<width> room;
    sweep_position p = sweep_position_of<width>(s);
    tally<width> t = {};
    concat_source from = source_of(parts, p.here ? p.channel : 0);
    const T *data = (const T *)from.part->data + from.at;
    int64_t pitch = from.part->words;
    for (int64_t tile = blockIdx.x; p.here && tile < s.tiles; tile += gridDim.x) {
        tile_rows rows = rows_of(s, p, tile);
        cell<T, width> got[unroll];
#pragma unroll
        for (int j = 0; j < unroll; j++)
            if (j < rows.count) got[j] = load<T, width>(data + (rows.first + j * rows.lanes) * pitch);
#pragma unroll
        for (int j = 0; j < unroll; j++) {
            if (j >= rows.count) continue;
            *(cell<T, width> *)(whole + rows[j]) = got[j];
#pragma unroll
            for (int i = 0; i < width; i++) {
                t.first[i] += got[j].get(i);
                t.second[i] = fmaf(got[j].get(i), got[j].get(i), t.second[i]);
            }
        }
    }
    merge_lanes<merge_sums>(t, s.span, s.lanes, room);
    leave_part(s, p, t, sums);
}

/* True if no pack is in two parts, and rows begin at packs. */
static bool in_packs(const struct call *call)
{
    int64_t width = 16 / (int64_t)dtype_bytes(call->y.dtype);
    bool packs = true;
    for (int i = 0; i < call->x_count; i++) packs = packs && call->x[i].shape.c % width == 0;
    return packs;
}

static size_t concat_workspace(const struct call *call)
{
    if (!call_operand(call, OPERAND_Y_MOMENTS)) return 0;
    struct shape y = call->y.shape;
    if (!in_packs(call)) return channel_sums_workspace(y.n * y.h * y.w, (int)y.c, true);
    struct sweep s = sweep_open(&call->y, 16 / (int)dtype_bytes(call->y.dtype));
    return 2 * sizeof(float) * (size_t)(s.channels * sweep_height(&s, blocks_max));
}

static enum status concat_summing(const struct call *call)
{
    struct concat_parts parts = parts_of(&call->y, call->x, call->x, call->x_count);
    parts_in_words(&parts, (int64_t)dtype_bytes(call->y.dtype));
    return with_type(call->y.dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int width = pack<T>::count;
        struct sweep s = sweep_open(&call->y, width);
        dim3 grid = sweep_grid(call, &s, 4);
        float *sums = (float *)call->workspace;
        concat_sums_kernel<T, width>
            <<<grid, threads, 0, stream_of(call)>>>((T *)call->y.data, parts, s, sums);
        TRY(launched(call));
        float *moments = (float *)call_data(call, OPERAND_Y_MOMENTS);
        return channel_sum_shares(call, moments, sums, (int)grid.x, 2 * (int)s.channels);
    });
}

static enum status concat_forward(const struct call *call)
{
    float *moments = (float *)call_data(call, OPERAND_Y_MOMENTS);
    bool sums = moments && shape_count(call->y.shape) > 0;
    if (sums && in_packs(call)) return concat_summing(call);
    TRY(concat_copy<true>(call, &call->y, call->x));
    return sums ? channel_sums(call, &call->y, moments, true) : OK;
}

static enum status concat_backward(const struct call *call)
{
    return concat_copy<false>(call, &call->d_y, call->d_x);
}

const struct op_code concat_cuda = {
    .supports = concat_cuda_supports,
    .workspace = concat_workspace,
    .forward = concat_forward,
    .backward = concat_backward,
};
