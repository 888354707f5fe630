#include "kernels/support/copy.cuh"

#include "kernels/support/chunk.cuh"

#define THREADS 256

/* One channel, or 16 bytes of channels, per thread. */
template <class V>
__global__ void copy_picked_kernel(struct pick p, int width, V *picked, const V *x, int64_t count)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        unsigned rest = (unsigned)(i / width), c = (unsigned)(i % width);
        unsigned q = rest % p.out[1], row = rest / p.out[1];
        unsigned h = row % p.out[0] * p.stride[0], n = row / p.out[0];
        picked[i] = x[(((int64_t)n * p.in[0] + h) * p.in[1] + q * p.stride[1]) * width + c];
    }
}

template <class V>
__global__ void copy_spread_kernel(struct pick p, int width, V *x, const V *picked, int64_t count)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        unsigned rest = (unsigned)(i / width), c = (unsigned)(i % width);
        unsigned w = rest % p.in[1], row = rest / p.in[1];
        unsigned h = row % p.in[0], n = row / p.in[0], out_h = h / p.stride[0], out_w = w / p.stride[1];
        bool hit = h % p.stride[0] == 0 && w % p.stride[1] == 0 && out_h < (unsigned)p.out[0] &&
                   out_w < (unsigned)p.out[1];
        x[i] = hit ? picked[(((int64_t)n * p.out[0] + out_h) * p.out[1] + out_w) * width + c] : V();
    }
}

/* Calls work(word, width, blocks, count): a row of channels has `width` words, all `pixels` have `count`. */
template <class Work>
static enum status with_words(const struct call *call, const struct pick *p, const int pixels[2], Work work)
{
    return with_word(p->c * dtype_bytes(p->dtype), [&](auto word) {
        int width = (int)(p->c * dtype_bytes(p->dtype) / sizeof word);
        int64_t count = (int64_t)p->n * pixels[0] * pixels[1] * width;
        work(word, width, grid_of(call, count, THREADS, 4), count);
        return launched(call);
    });
}

enum status copy_picked(const struct call *call, const struct pick *pick, void *picked, const void *x)
{
    return with_words(call, pick, pick->out, [&](auto word, int width, unsigned blocks, int64_t count) {
        using W = decltype(word);
        copy_picked_kernel<<<blocks, THREADS, 0, stream_of(call)>>>(*pick, width, (W *)picked, (const W *)x,
                                                                  count);
    });
}

enum status copy_spread(const struct call *call, const struct pick *pick, void *x, const void *picked)
{
    return with_words(call, pick, pick->in, [&](auto word, int width, unsigned blocks, int64_t count) {
        using W = decltype(word);
        copy_spread_kernel<<<blocks, THREADS, 0, stream_of(call)>>>(*pick, width, (W *)x, (const W *)picked,
                                                                    count);
    });
}
