/* blend.cu: a thread adds a pixel of a tile to the band, and a block finishes a row of the result. */
#include "kernels/support/cuda.cuh"

extern "C" {
#include "kernels/images/blend.h"
}

static constexpr int threads = 256;

static __global__ void blend_add_kernel(const struct blend_tile tile)
{
    int column = (int)(blockIdx.x * threads + threadIdx.x);
    if (column < tile.w) blend_add_pixel(&tile, (int)blockIdx.y, column);
}

static enum status blend_add(struct device *device, void *stream, const struct blend_tile *tile)
{
    dim3 grid((unsigned)div_up(tile->w, threads), (unsigned)tile->h);
    blend_add_kernel<<<grid, threads, 0, (cudaStream_t)stream>>>(*tile);
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
