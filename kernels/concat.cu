#include "kernels/chunk.cuh"

#define THREADS 256

/* One input's channels, in words: where they begin in a pixel of the whole, and how many they are. */
struct concat_part {
    void *data;
    int64_t first, words;
};
struct concat_parts {
    int64_t pixels, pitch;     /* pitch: words from one of the whole's pixels to the next */
    int count;
    struct concat_part part[OP_MAX_INPUTS];
};

/* Part blockIdx.y into the whole, or out of it. Threads are laid words x pixels. */
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

/* The parts that are there, in bytes. */
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

/* The most that all parts can be moved in multiples of, up to 16 bytes. */
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

static enum status concat_forward(const struct call *call)
{
    return concat_copy<true>(call, &call->y, call->x);
}

static enum status concat_backward(const struct call *call)
{
    return concat_copy<false>(call, &call->d_y, call->d_x);
}

const struct op_code concat_cuda = {.forward = concat_forward, .backward = concat_backward};
