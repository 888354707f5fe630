/* images.cu: finishes images: a block makes a band of rows of one of them. A resized row is made from its sums
 * down the columns, which the block shares. Operations and their order are those of data/resample.h, so the bits
 * are the CPU's. */
#include "kernels/cuda.cuh"

extern "C" {
#include "kernels/images.h"
}

static constexpr int threads = 256;

/* What kernels read of a job. */
struct task {
    const struct finish *images;
    const uint8_t *places[FINISH_PLACES];
    const uint32_t (*table)[256];
    int h, w, c;
    void *out;
};

/* A band of rows of one image. */
template <class Bits> struct band {
    const struct finish *image;
    const uint8_t *pixels;             /* where from.y, from.x would be */
    const uint32_t (*table)[256];
    int first, rows, w, c;
    Bits *out;

    /* Element `at` of the band gets what `sample` makes of the pixel y, x of the resized image, if that is seen. */
    template <class Sample> __device__ void put(int at, Sample sample) const
    {
        int k = at % c, x = at / c % w, y = first + at / c / w;
        int from_y = image->window.y + y, from_x = image->window.x + (image->flip ? w - 1 - x : x);
        bool seen = from_y >= 0 && from_y < image->h && from_x >= 0 && from_x < image->w;
        uint8_t byte = seen ? sample(from_y, from_x, k) : 0;
        out[at] = finish_erases(image, y, x) ? (Bits)0 : (Bits)table[k][byte];
    }
};

/* Which source pixels make outputs of one axis, in shared memory. */
struct taps {
    int most;
    float *weights;                    /* [outputs][most] */
    struct reach *spans;                /* [outputs] */

    /* Takes its room from `memory` on, and returns what is behind it. */
    __device__ float *place(float *memory, int outputs, int size, int target)
    {
        most = resample_most(size, target);
        spans = (struct reach *)memory;
        weights = memory + 2 * outputs;
        return weights + outputs * most;
    }

    __device__ void make(int slot, int size, int target, int i)
    {
        spans[slot] = resample_pixels(size, target, i);
        resample_weights(size, target, i, spans[slot], weights + slot * most);
    }
};

template <class Bits> __device__ static void copy_band(const struct band<Bits> &band)
{
    const struct finish *image = band.image;
    for (int i = threadIdx.x; i < band.rows * band.w * band.c; i += threads)
        band.put(i, [&](int y, int x, int k) { return band.pixels[y * image->stride + x * band.c + k]; });
}

template <class Bits> __device__ static void resize_band(const struct band<Bits> &band, float *shared)
{
    const struct finish *image = band.image;
    const struct box *from = &image->from;
    struct reach columns = finish_seen(image->window.x, image->window.w, image->w), reach = {0, 0};
    struct taps across, down;
    int outputs = columns.high - columns.low;
    if (outputs > 0) reach = finish_reach(from->w, image->w, columns);
    float *sums = across.place(shared, outputs, from->w, image->w);
    sums = down.place(sums, FINISH_ROWS, from->h, image->h);
    for (int i = threadIdx.x; i < outputs; i += threads) across.make(i, from->w, image->w, columns.low + i);
    int top = image->window.y + band.first;
    if (threadIdx.x < band.rows && top + (int)threadIdx.x >= 0 && top + (int)threadIdx.x < image->h)
        down.make(threadIdx.x, from->h, image->h, top + threadIdx.x);
    int width = (reach.high - reach.low) * band.c, line = band.w * band.c;
    const uint8_t *left = band.pixels + reach.low * band.c;
    for (int begin = 0; begin < band.rows; begin += FINISH_TOGETHER) {
        int rows = band.rows - begin < FINISH_TOGETHER ? band.rows - begin : FINISH_TOGETHER;
        __syncthreads();
        for (int i = threadIdx.x; i < rows * width; i += threads) {
            int row = begin + i / width, column = i % width;
            if (top + row < 0 || top + row >= image->h) continue;
            struct reach span = down.spans[row];
            sums[i] = resample_down(left + span.low * image->stride + column, image->stride,
                                    down.weights + row * down.most, span.high - span.low);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < rows * line; i += threads)
            band.put(begin * line + i, [&](int y, int x, int k) {
                int slot = x - columns.low;
                struct reach span = across.spans[slot];
                const float *row = sums + (y - top - begin) * width;
                return resample_across(row + (span.low - reach.low) * band.c + k, band.c,
                                       across.weights + slot * across.most, span.high - span.low);
            });
    }
}

template <class Bits> __global__ static void __launch_bounds__(threads) finish_bands(const struct task task)
{
    extern __shared__ float shared[];
    __shared__ struct finish image;
    if (threadIdx.x == 0) image = task.images[blockIdx.x];
    __syncthreads();
    int first = blockIdx.y * FINISH_ROWS, left = task.h - first;
    struct band<Bits> band = {&image, NULL, task.table, first, left < FINISH_ROWS ? left : FINISH_ROWS, task.w, task.c,
                              (Bits *)task.out + ((int64_t)blockIdx.x * task.h + first) * task.w * task.c};
    if (image.blank) {
        for (int i = threadIdx.x; i < band.rows * band.w * band.c; i += threads) band.out[i] = 0;
        return;
    }
    band.pixels = task.places[image.place] + image.at + image.from.y * image.stride + image.from.x * task.c;
    if (finish_resizes(&image)) resize_band(band, shared);
    else copy_band(band);
}

/* From the last image to the first, so that the one before is always as it was; a thread per element of an image. */
template <class T> __global__ static void __launch_bounds__(threads)
mix_images(T *images, int count, int h, int w, int c, const struct mix mix)
{
    int64_t size = (int64_t)h * w * c, at = (int64_t)blockIdx.x * threads + threadIdx.x;
    if (at >= size) return;
    int x = (int)(at / c % w), y = (int)(at / c / w);
    const struct box *box = &mix.box;
    if (mix.pasted && (y < box->y || y >= box->y + box->h || x < box->x || x >= box->x + box->w)) return;
    float rest = rounded_sum(1, -mix.share);
    T last = images[(count - 1) * size + at], own = last;
    for (int i = count - 1; i >= 0; i--) {
        T other = i > 0 ? images[(i - 1) * size + at] : last;
        images[i * size + at] =
            mix.pasted ? other
                       : from_float<T>(rounded_sum(rounded_product(mix.share, to_float(own)),
                                                   rounded_product(rest, to_float(other))));
        own = other;
    }
}

static enum status queue_mix(const struct images_job *job)
{
    return with_type(job->dtype, [&](auto zero) {
        typedef decltype(zero) T;
        unsigned blocks = (unsigned)div_up((int64_t)job->h * job->w * job->c, (int64_t)threads);
        mix_images<<<blocks, threads, 0, (cudaStream_t)job->lane>>>((T *)job->out, job->count, job->h, job->w, job->c,
                                                                    *job->mix);
        return cuda_status(job->device, cudaGetLastError(), "mixing images");
    });
}

static enum status finish(const struct images_job *job)
{
    struct task task = {job->images, {0}, job->table, job->h, job->w, job->c, job->out};
    for (int i = 0; i < FINISH_PLACES; i++) task.places[i] = job->places[i];
    dim3 grid((unsigned)job->count, (unsigned)div_up(job->h, FINISH_ROWS));
    cudaStream_t stream = (cudaStream_t)job->lane;
    if (job->dtype == F32) finish_bands<uint32_t><<<grid, threads, job->shared, stream>>>(task);
    else finish_bands<uint16_t><<<grid, threads, job->shared, stream>>>(task);
    TRY(cuda_status(job->device, cudaGetLastError(), "finishing images"));
    return job->mix ? queue_mix(job) : OK;
}

const struct images_code images_cuda = {finish};
