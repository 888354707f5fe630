#include "kernels/support/columns.cuh"

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

/* Copies rows of the whole, and adds up what it copies and its squares. Parts are in elements. */
template <class T> struct concat_sums {
    static constexpr int width = pack<T>::count, sums = 2, in_flight = 4, blocks = 4;
    using cells = chunk<T, width>;
    T *whole;
    struct concat_parts parts;
    const T *from;             /* the part that has the thread's channels, from these on */
    int64_t pitch;

    __device__ void begin(const concat_sums &body, int channel)
    {
        const struct concat_part *part = body.parts.part;
        for (int i = 1; i < body.parts.count && channel >= part[1].first; i++) part++;
        from = (const T *)part->data + channel - part->first;
        pitch = part->words;
    }
    __device__ void load(cells &to, int64_t row, int64_t) const { to = *(const cells *)(from + row * pitch); }
    __device__ void add(const cells &in, int64_t, int64_t at, float (&sum)[sums][width]) const
    {
        *(cells *)(whole + at) = in;
#pragma unroll
        for (int i = 0; i < width; i++) {
            float value = to_float(in.at[i]);
            sum[0][i] += value;
            sum[1][i] = fmaf(value, value, sum[1][i]);
        }
    }
};

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
    return call_operand(call, OPERAND_Y_MOMENTS) ? columns_workspace(&call->y, true) : 0;
}

static enum status concat_summing(const struct call *call, float *moments)
{
    struct concat_parts parts = parts_of(&call->y, call->x, call->x, call->x_count);
    parts_in_words(&parts, (int64_t)dtype_bytes(call->y.dtype));
    return with_type(call->y.dtype, [&](auto type) {
        using T = decltype(type);
        concat_sums<T> of = {(T *)call->y.data, parts};
        return columns_run(call, of, call->y.dtype, call->y.shape, (float *)call->workspace, moments,
                           moments + call->y.shape.c);
    });
}

static enum status concat_forward(const struct call *call)
{
    float *moments = (float *)call_data(call, OPERAND_Y_MOMENTS);
    bool sums = moments && shape_count(call->y.shape) > 0;
    if (sums && in_packs(call)) return concat_summing(call, moments);
    TRY(concat_copy<true>(call, &call->y, call->x));
    return sums ? columns_sum(call, &call->y, moments, true) : OK;
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
