/* images.cu: preprocessing of images: a block computes tiles of one image, a warp one row. A resized row is
 * computed from its column sums, which are in shared memory. Images to be varied become pictures of bytes
 * first, each of which a block changes (vary.cu). Operations and their order are those of
 * data/augment/resample.h, so the bits are the CPU's. */
#include "kernels/support/cuda.cuh"

extern "C" {
#include "kernels/images/images.h"
}
#include "kernels/images/vary.cuh"

static constexpr int threads = 32 * TILE_WARPS;

/* The members of a job that kernels read. */
struct task {
    const struct image_record *images;
    const uint8_t *sources[IMAGE_SOURCES];
    const uint32_t (*table)[256];
    int h, w, c;
    void *out;
    int64_t step;                      /* elements of `out` from image to image */
};

/* Source pixels of the outputs of one axis, in shared memory. */
struct taps {
    int most;
    float *weights;                    /* [outputs][most] */
    struct pixel_range *reaches;       /* [outputs] */

    /* Assigns memory from `memory` on, and returns its end. */
    __device__ float *place(float *memory, int outputs, int size, int target)
    {
        most = resample_taps(size, target);
        reaches = (struct pixel_range *)memory;
        weights = memory + 2 * outputs;
        return weights + outputs * most;
    }

    __device__ void make(int slot, int size, int target, int i)
    {
        reaches[slot] = resample_pixels(size, target, i);
        resample_weights(size, target, i, reaches[slot], weights + slot * most);
    }
};

/* A tile of one image. C: channels; 0: `c` says. */
template <class Bits, int C> struct tile {
    const struct image_record *image;
    const uint8_t *pixels;             /* where from.y, from.x would be */
    const Bits *table;                 /* [c][256], in shared memory */
    int y, x, h, w, c, line;           /* its position in the output; its size;
                                        * elements of a row of the image */
    Bits *out;                         /* its first element */

    __device__ __forceinline__ int channels() const { return C ? C : c; }
    /* The row and column of the resized image for a row and column of the tile. */
    __device__ __forceinline__ int row(int at) const
    {
        int down = image->vflip ? image->window.h - 1 - y - at : y + at;
        return image_record_pixel(image->window.y + down, image->h, image->reflect);
    }
    __device__ __forceinline__ int column(int at) const
    {
        int across = x + at;
        return image->window.x + (image->flip ? image->window.w - 1 - across : across);
    }
    __device__ __forceinline__ bool has_row(int at) const { return row(at) >= 0 && row(at) < image->h; }

    /* One row by this warp: `sample` computes the bytes of the visible pixels. */
    template <class Sample> __device__ __forceinline__ void put(int at, Sample sample) const
    {
        const struct box erased = image->erased;
        bool erases = sizeof(Bits) > 1 && y + at >= erased.y && y + at < erased.y + erased.h;
        int gone = erases ? erased.x - x : 0, back = erases ? gone + erased.w : 0;
        int first = column(0), step = image->flip ? -1 : 1, size = image->w, end = has_row(at) ? size : 0;
        int reflect = image->reflect;
        Bits *to = out + (int64_t)at * line;
        for (int i = threadIdx.x % 32; i < w * channels(); i += 32) {
            int place = i / channels(), k = i % channels();
            int from = image_record_pixel(first + step * place, size, reflect);
            Bits bits = table[256 * k + (from >= 0 && from < end ? sample(from, k) : 0)];
            to[i] = place >= gone && place < back ? (Bits)0 : bits;
        }
    }
};

template <class Bits, int C>
__device__ __forceinline__ static void copy_tile(const struct tile<Bits, C> &tile)
{
    for (int at = threadIdx.x / 32; at < tile.h; at += TILE_WARPS) {
        const uint8_t *row = tile.pixels + tile.row(at) * tile.image->stride;
        tile.put(at, [&](int x, int k) { return row[x * tile.channels() + k]; });
    }
}

template <class Bits, int C>
__device__ __forceinline__ static void resize_tile(const struct tile<Bits, C> &tile, float *shared)
{
    const struct image_record *image = tile.image;
    const struct box *from = &image->from;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, c = tile.channels();
    struct taps across, down;
    float *sums = across.place(shared, TILE_COLUMNS, from->w, image->w);
    sums = down.place(sums, TILE_ROWS, from->h, image->h);
    sums += warp * image_record_sums(from->w, image->w, c);
    /* Visible columns of the resized image: from the first up to, but not including, the last. */
    int one = tile.column(0), other = tile.column(tile.w - 1);
    struct pixel_range seen = image_record_visible(one < other ? one : other, tile.w, image->w);
    struct pixel_range reach = {0, 0};
    if (seen.low < seen.high) reach = image_record_reach(from->w, image->w, seen);
    if (warp == 0 && seen.low + lane < seen.high) across.make(lane, from->w, image->w, seen.low + lane);
    if (warp == 1 && lane < tile.h && tile.has_row(lane)) down.make(lane, from->h, image->h, tile.row(lane));
    __syncthreads();
    for (int at = warp; at < tile.h; at += TILE_WARPS) {
        if (tile.has_row(at)) {
            struct pixel_range rows = down.reaches[at];
            const uint8_t *top = tile.pixels + rows.low * image->stride + reach.low * c;
            const float *weights = down.weights + at * down.most;
            for (int i = lane; i < (reach.high - reach.low) * c; i += 32)
                sums[i] = resample_down(top + i, image->stride, weights, rows.high - rows.low);
        }
        __syncwarp();
        tile.put(at, [&](int x, int k) {
            struct pixel_range columns = across.reaches[x - seen.low];
            return resample_across(sums + (columns.low - reach.low) * c + k, c,
                                   across.weights + (x - seen.low) * across.most, columns.high - columns.low);
        });
        __syncwarp();
    }
}

/* Bits: of a number, or uint8_t: bytes stay as they are, and nothing is erased. */
template <class Bits, int C> __global__ static void __launch_bounds__(threads)
images_preprocess_kernel(const struct task task)
{
    extern __shared__ float shared[];
    __shared__ struct image_record image;
    __shared__ Bits table[4 * 256];
    int c = C ? C : task.c;
    if (threadIdx.x == 0) image = task.images[blockIdx.x];
    for (int i = threadIdx.x; i < 256 * c; i += threads)
        table[i] = sizeof(Bits) > 1 ? (Bits)task.table[i / 256][i % 256] : (Bits)(i % 256);
    __syncthreads();
    int height = image.blank ? task.h : image.window.h, width = image.blank ? task.w : image.window.w;
    int across = div_up(width, TILE_COLUMNS), tiles = across * div_up(height, TILE_ROWS), line = width * c;
    for (int at = blockIdx.y; at < tiles; at += gridDim.y) {
        int y = at / across * TILE_ROWS, x = at % across * TILE_COLUMNS, h = height - y, w = width - x;
        struct tile<Bits, C> tile = {&image, NULL, table, y, x, h < TILE_ROWS ? h : TILE_ROWS,
                                     w < TILE_COLUMNS ? w : TILE_COLUMNS, c, line,
                                     (Bits *)task.out + blockIdx.x * task.step + (int64_t)y * line + x * c};
        if (image.blank) {
            for (int row = threadIdx.x / 32; row < tile.h; row += TILE_WARPS)
                for (int i = threadIdx.x % 32; i < tile.w * c; i += 32) tile.out[(int64_t)row * line + i] = 0;
            continue;
        }
        tile.pixels = task.sources[image.source] + image.at + image.from.y * image.stride + image.from.x * c;
        if (image_record_resizes(&image)) resize_tile(tile, shared);
        else copy_tile(tile);
        __syncthreads();
    }
}

/* One element of a pair. */
template <class T> __device__ static T mixed(T own, T other, float share)
{
    return from_float<T>(rounded_sum(rounded_product(share, to_float(own)),
                                     rounded_product(rounded_sum(1, -share), to_float(other))));
}

/* Images that a thread processes at once. */
static constexpr int in_hand = 8;

/* From the last image to the first, so that the preceding one is still unmixed; one thread per element of an
 * image, `blocks` blocks for each micro-batch. */
template <class T> __global__ static void __launch_bounds__(threads)
images_mix_kernel(T *images, unsigned blocks, int h, int w, int c, const struct mix mix)
{
    int count = mix.together;
    int64_t size = (int64_t)h * w * c, at = (int64_t)(blockIdx.x % blocks) * threads + threadIdx.x;
    if (at >= size) return;
    int x = (int)(at / c % w), y = (int)(at / c / w);
    const struct box *box = &mix.box;
    if (mix.pasted && (y < box->y || y >= box->y + box->h || x < box->x || x >= box->x + box->w)) return;
    images += (int64_t)(blockIdx.x / blocks) * count * size;
    T last = images[(count - 1) * size + at];
    for (int first = (count - 1) / in_hand * in_hand; first >= 0; first -= in_hand) {
        T own[in_hand + 1];            /* following the preceding one */
        own[0] = first > 0 ? images[(first - 1) * size + at] : last;
#pragma unroll
        for (int i = 0; i < in_hand; i++)
            if (first + i < count) own[i + 1] = images[(first + i) * size + at];
#pragma unroll
        for (int i = 0; i < in_hand; i++)
            if (first + i < count)
                images[(first + i) * size + at] = mix.pasted ? own[i] : mixed(own[i + 1], own[i], mix.share);
    }
}

static enum status queue_mix(const struct images_job *job)
{
    return with_type(job->dtype, [&](auto zero) {
        typedef decltype(zero) T;
        unsigned blocks = (unsigned)div_up((int64_t)job->h * job->w * job->c, (int64_t)threads);
        unsigned micro_batches = (unsigned)(job->count / job->mix->together);
        images_mix_kernel<<<blocks * micro_batches, threads, 0, (cudaStream_t)job->stream>>>(
            (T *)job->out, blocks, job->h, job->w, job->c, *job->mix);
        return cuda_status(job->device, cudaGetLastError(), "mixing images");
    });
}

template <class Bits, int C>
static void queue_tiles(const struct images_job *job, const struct task *task, int count)
{
    dim3 grid((unsigned)count, (unsigned)(div_up(job->w, TILE_COLUMNS) * div_up(job->h, TILE_ROWS)));
    images_preprocess_kernel<Bits, C><<<grid, threads, job->shared, (cudaStream_t)job->stream>>>(*task);
}

template <class Bits>
static void queue_channels(const struct images_job *job, const struct task *task, int count)
{
    if (job->c == 3) queue_tiles<Bits, 3>(job, task, count);
    else if (job->c == 1) queue_tiles<Bits, 1>(job, task, count);
    else queue_tiles<Bits, 0>(job, task, count);
}

/* Pictures of bytes, which are changed, so many at a time. */
static enum status queue_varied(const struct images_job *job, struct task task)
{
    task.step = 2 * (int64_t)job->picture;
    task.out = job->pictures;
    for (int first = 0; first < job->count; first += images_together(job->count)) {
        int rest = job->count - first, together = images_together(job->count);
        task.images = job->images + first;
        queue_channels<uint8_t>(job, &task, rest < together ? rest : together);
        TRY(cuda_status(job->device, cudaGetLastError(), "cutting images"));
        TRY(queue_vary(job, first, rest < together ? rest : together));
    }
    return OK;
}

static enum status images_preprocess(const struct images_job *job)
{
    struct task task = {job->images, {0}, job->table, job->h, job->w, job->c, job->out,
                        (int64_t)job->h * job->w * job->c};
    for (int i = 0; i < IMAGE_SOURCES; i++) task.sources[i] = job->sources[i];
    if (job->variations) TRY(queue_varied(job, task));
    else if (job->dtype == F32) queue_channels<uint32_t>(job, &task, job->count);
    else queue_channels<uint16_t>(job, &task, job->count);
    TRY(cuda_status(job->device, cudaGetLastError(), "preprocessing images"));
    return job->mix ? queue_mix(job) : OK;
}

const struct images_code images_cuda = {images_preprocess};
