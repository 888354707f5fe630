/* blend.cu: a block adds a part of a row of a tile to the band, or finishes a row of the result. */
#include "kernels/support/cuda.cuh"

extern "C" {
#include "kernels/images/blend.h"
}

static constexpr int threads = 256, shared_numbers = 12288;

/* Calls body(pixel, class) for the numbers of so many pixels: neighbours for neighbouring threads. */
template <class Body> __device__ static inline void each_number(int pixels, int classes, Body body)
{
    int pixel = (int)threadIdx.x / classes, c = (int)threadIdx.x % classes;
    int pixel_step = (int)blockDim.x / classes, class_step = (int)blockDim.x % classes;
    while (pixel < pixels) {
        body(pixel, c);
        pixel += pixel_step;
        c += class_step;
        if (c >= classes) c -= classes, pixel++;
    }
}

/* A thread has a pixel, whose numbers lie in shared memory meanwhile: an odd number of them. */
static __global__ void blend_add_kernel(const struct blend_tile tile)
{
    extern __shared__ float numbers[];
    int classes = tile.band.classes, pitch = classes | 1, row = (int)blockIdx.y;
    int first = (int)(blockIdx.x * blockDim.x), pixels = min((int)blockDim.x, tile.w - first);
    const float *logits = tile.logits + ((int64_t)row * tile.w + first) * classes;
    if (tile.y + row < 0 || tile.y + row >= tile.image_h) return;
    each_number(pixels, classes, [&](int i, int c) { numbers[i * pitch + c] = logits[i * classes + c]; });
    __syncthreads();
    int own = (int)threadIdx.x;
    if (own < pixels) blend_weigh(&tile, row, first + own, numbers + own * pitch);
    __syncthreads();
    each_number(pixels, classes, [&](int i, int c) {
        float *sums = blend_target(&tile, row, first + i);
        if (sums) sums[c] += numbers[i * pitch + c];
    });
}

static enum status blend_add(struct device *device, void *stream, const struct blend_tile *tile)
{
    int pitch = tile->band.classes | 1, pixels = shared_numbers / pitch / 32 * 32;
    if (pixels > threads) pixels = threads;
    dim3 grid((unsigned)div_up(tile->w, pixels), (unsigned)tile->h);
    size_t bytes = (size_t)pixels * pitch * sizeof(float);
    blend_add_kernel<<<grid, (unsigned)pixels, bytes, (cudaStream_t)stream>>>(*tile);
    return cuda_status(device, cudaGetLastError(), "blending tiles");
}

/* Losses are added up in a fixed order. */
static __global__ void blend_finish_kernel(const struct blend_part part)
{
    __shared__ double losses[threads];
    int thread = (int)threadIdx.x;
    double loss = 0;
    for (int column = thread; column < part.box.w; column += threads)
        loss += (double)blend_finish_pixel(&part, (int)blockIdx.x, column);
    losses[thread] = loss;
    for (int half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) losses[thread] += losses[thread + half];
    }
    if (thread == 0) part.losses[blockIdx.x] = losses[0];
}

static enum status blend_finish(struct device *device, void *stream, const struct blend_part *part)
{
    blend_finish_kernel<<<(unsigned)part->box.h, threads, 0, (cudaStream_t)stream>>>(*part);
    return cuda_status(device, cudaGetLastError(), "finishing rows of a band");
}

const struct blend_code blend_cuda = {blend_add, blend_finish};
