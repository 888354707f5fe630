/* vary.cu: changes pictures of bytes as the CPU does (data/augment/vary.c), with the same bits: the
 * arithmetic is that of data/augment/pixel.h and turning.h, compiled without contraction. A block has a
 * picture, and memory for another one, which what reads neighbours writes; sums and counts are whole numbers,
 * whose order does not matter. */
#include "kernels/support/cuda.cuh"

extern "C" {
#include "data/augment/intensity.h"
#include "data/augment/pixel.h"
#include "kernels/images/images.h"
}
#include "kernels/images/vary.cuh"

static constexpr int threads = 1024;

struct vary_task {
    const struct image_record *images;
    const struct variation *variations;
    uint8_t *pictures;
    int64_t picture;                   /* bytes of each */
    const float *normal;
    const uint32_t (*table)[256];
    int h, w, c;
    void *out;
};

/* Memory that the threads of a block share. */
struct shared_part {
    struct image_record image;
    struct variation variation;
    unsigned long long counts[4][256];
    uint8_t tables[4][256];            /* what bytes of each channel have become since they were written */
    uint32_t numbers[4][256];          /* of the output */
    unsigned long long sum;
};

/* f(i) for all i below count, by the block's threads. */
template <class F> __device__ __forceinline__ static void each(int count, F f)
{
    for (int i = threadIdx.x; i < count; i += threads) f(i);
    __syncthreads();
}

struct canvas {
    uint8_t *now, *other;
    int h, w, c;
    struct shared_part *part;
    float *rows;                       /* BLUR_SHARED bytes */
    bool settled;                      /* the tables change nothing */

    __device__ int numbers() const { return h * w * c; }
    __device__ uint8_t seen(int i, int k) const { return part->tables[k][now[i]]; }
    __device__ void clear_tables()
    {
        each(4 * 256, [&](int i) { part->tables[i / 256][i % 256] = (uint8_t)(i % 256); });
        settled = true;
    }

    /* Writes what bytes have become, for what reads others' than a thread's own. */
    __device__ void settle()
    {
        if (settled) return;
        each(h * w, [&](int i) { for (int k = 0; k < c; k++) now[i * c + k] = seen(i * c + k, k); });
        clear_tables();
    }

    __device__ void swap()
    {
        uint8_t *kept = now;
        now = other;
        other = kept;
    }

    __device__ void turn(const struct turning *turning)
    {
        each(h * w, [&](int i) {
            struct turning_taps taps = turning_taps_at(turning, i / w, i % w);
            for (int k = 0; k < c; k++) other[i * c + k] = turning_byte(&taps, now, c, k);
        });
        swap();
    }

    /* Every byte becomes f(byte). */
    template <class F> __device__ void bytes(F f)
    {
        each(4 * 256, [&](int i) {
            uint8_t *to = &part->tables[i / 256][i % 256];
            *to = f(*to);
        });
        settled = false;
    }

    /* Every pixel of three channels becomes f(pixel). */
    template <class F> __device__ void pixels(F f)
    {
        if (c != 3) return;
        each(h * w, [&](int i) {
            uint8_t rgb[3] = {seen(3 * i, 0), seen(3 * i + 1, 1), seen(3 * i + 2, 2)};
            f(rgb);
            for (int k = 0; k < 3; k++) now[3 * i + k] = rgb[k];
        });
        clear_tables();
    }

    __device__ void blend(double factor, float other)
    {
        float own = (float)factor, rest = (float)(1 - factor);
        bytes([&](uint8_t x) { return pixel_blend(own, rest, x, other); });
    }

    __device__ void contrast(double factor)
    {
        unsigned long long sum = 0;
        if (threadIdx.x == 0) part->sum = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < h * w; i += threads) {
            const uint8_t rgb[3] = {seen(c * i, 0), c == 3 ? seen(3 * i + 1, 1) : (uint8_t)0,
                                    c == 3 ? seen(3 * i + 2, 2) : (uint8_t)0};
            sum += c == 3 ? pixel_grey(rgb) : rgb[0];
        }
        atomicAdd(&part->sum, sum);
        __syncthreads();
        blend(factor, (float)((double)part->sum / (double)((int64_t)h * w)));
    }

    __device__ void saturate(double factor)
    {
        float own = (float)factor, rest = (float)(1 - factor);
        pixels([&](uint8_t *rgb) {
            float grey = pixel_grey(rgb);
            for (int k = 0; k < 3; k++) rgb[k] = pixel_blend(own, rest, rgb[k], grey);
        });
    }

    __device__ void sharpen(double factor)
    {
        float own = (float)factor, rest = (float)(1 - factor);
        int line = w * c;
        if (h <= 2 || w <= 2) return;
        settle();
        each(numbers(), [&](int i) {
            int y = i / line, x = i % line;
            const uint8_t *at = now + i;
            bool inside = y > 0 && y < h - 1 && x >= c && x < line - c;
            other[i] = inside ? pixel_sharpened(at - line, at, at + line, c, own, rest) : *at;
        });
        swap();
    }

    /* Tables of each channel, by its histogram. */
    template <class F> __device__ __forceinline__ void histogram(F make)
    {
        settle();
        each(4 * 256, [&](int i) { part->counts[i / 256][i % 256] = 0; });
        each(numbers(), [&](int i) { atomicAdd(&part->counts[i % c][now[i]], 1ull); });
        each(c, [&](int k) { make((const int64_t *)part->counts[k], part->tables[k]); });
        settled = false;
    }

    __device__ void warp(const struct warp *warp)
    {
        settle();
        each(h * w, [&](int i) {
            double right = i % w + 0.5, below = i / w + 0.5;
            int column = pixel_under(warp->across[0] * right + warp->across[1] * below + warp->across[2], w);
            int row = pixel_under(warp->down[0] * right + warp->down[1] * below + warp->down[2], h);
            for (int k = 0; k < c; k++)
                other[i * c + k] = column < 0 || row < 0 ? 0 : now[((int64_t)row * w + column) * c + k];
        });
        swap();
    }

    /* A pass of colour_blur, along the pixels that lie `step` numbers apart. */
    __device__ void soften(bool down, const uint32_t weights[3])
    {
        int size = down ? h : w, line = w * c;
        int64_t step = down ? line : c;
        each(numbers(), [&](int i) {
            int at = down ? i / line : i % line / c;
            const uint8_t *from = now + i - at * step;
            other[i] = pixel_softened(weights, from[pixel_near(at - 2, size) * step],
                                      from[pixel_near(at - 1, size) * step], from[at * step],
                                      from[pixel_near(at + 1, size) * step],
                                      from[pixel_near(at + 2, size) * step]);
        });
        swap();
    }

    /* Blurs so many rows at a time as there is memory for their sums down the columns. */
    __device__ void blur(int reach, const float *weights)
    {
        int line = w * c, together = BLUR_SHARED / (int)sizeof(float) / line;
        settle();
        for (int y = 0; y < h; y += together) {
            int count = h - y < together ? h - y : together;
            each(count * line, [&](int i) {
                int row = y + i / line, x = i % line;
                float sum = 0;
                for (int k = -reach; k <= reach; k++)
                    sum += weights[k < 0 ? -k : k] * (float)now[pixel_mirrored(row + k, h) * line + x];
                rows[i] = sum;
            });
            each(count * line, [&](int i) {
                const float *row = rows + i / line * line;
                int x = i % line / c, channel = i % c;
                float sum = 0;
                for (int k = -reach; k <= reach; k++)
                    sum += weights[k < 0 ? -k : k] * row[pixel_mirrored(x + k, w) * c + channel];
                other[(int64_t)y * line + i] = (uint8_t)(int)(sum + 0.5f);
            });
        }
        swap();
    }

    __device__ void noise(double deviation, const struct random *random, uint64_t draw, const float *normal)
    {
        float scale = (float)(deviation * 255);
        int count = numbers();
        settle();
        each((count + 7) / 8, [&](int block) {
            uint32_t words[4];
            philox_words(random, draw + block, words);
            for (int k = 0; k < 8 && 8 * block + k < count; k++) {
                uint8_t *at = now + 8 * block + k;
                float added = scale * normal[words[k / 2] >> 16 * (k % 2) & 0xffff];
                *at = pixel_byte((float)*at + added + 0.5f);
            }
        });
    }

    __device__ void change(const struct change *change, const float *normal)
    {
        const struct variation *variation = &part->variation;
        double amount = change->amount;
        switch (change->kind) {
        case CHANGE_BRIGHTNESS: return blend(amount, 0);
        case CHANGE_CONTRAST: return contrast(amount);
        case CHANGE_SATURATION: return saturate(amount);
        case CHANGE_HUE: return pixels([&](uint8_t *rgb) { pixel_turn_hue(rgb, (float)amount); });
        case CHANGE_SHARPNESS: return sharpen(amount);
        case CHANGE_POSTERIZE: return bytes([&](uint8_t x) { return pixel_posterized(x, (int)amount); });
        case CHANGE_SOLARIZE: return bytes([&](uint8_t x) { return pixel_solarized(x, amount); });
        case CHANGE_GAMMA: return bytes([&](uint8_t x) { return variation->gamma[x]; });
        case CHANGE_AUTOCONTRAST: return histogram(pixel_stretch);
        case CHANGE_EQUALIZE: return histogram(pixel_flatten);
        case CHANGE_WARP: return warp(&change->warp);
        case CHANGE_SOFTEN:
            settle();
            for (int i = 0; i < 6; i++) soften(i >= 3, variation->soften);
            return;
        case CHANGE_BLUR: return blur(change->reach, variation->blur);
        case CHANGE_NOISE: return noise(amount, &variation->random, variation->draw, normal);
        }
    }
};

template <class T> __device__ static void copy_words(T *to, const T *from)
{
    static_assert(sizeof(T) % 4 == 0, "words");
    for (int i = threadIdx.x; i < (int)(sizeof(T) / 4); i += threads)
        ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}

template <class Bits> __global__ static void __launch_bounds__(threads)
vary_kernel(const struct vary_task task)
{
    extern __shared__ float rows[];
    __shared__ struct shared_part part;
    copy_words(&part.image, &task.images[blockIdx.x]);
    copy_words(&part.variation, &task.variations[blockIdx.x]);
    __syncthreads();
    uint8_t *first = task.pictures + 2 * blockIdx.x * task.picture;
    struct canvas canvas = {first, first + task.picture, task.h, task.w, task.c, &part, rows, false};
    Bits *out = (Bits *)task.out + (int64_t)blockIdx.x * canvas.numbers();
    if (part.image.blank) {
        each(canvas.numbers(), [&](int i) { out[i] = 0; });
        return;
    }
    canvas.clear_tables();
    if (part.variation.turned) canvas.turn(&part.variation.turning);
    for (int i = 0; i < part.variation.count; i++) canvas.change(&part.variation.changes[i], task.normal);
    each(256 * task.c, [&](int i) {
        part.numbers[i / 256][i % 256] = task.table[i / 256][part.tables[i / 256][i % 256]];
    });
    const struct image_record *image = &part.image;
    each(task.h * task.w, [&](int i) {
        bool erased = image->erased.h > 0 && image_record_erases(image, i / task.w, i % task.w);
        for (int k = 0; k < task.c; k++)
            out[i * task.c + k] = erased ? (Bits)0 : (Bits)part.numbers[k][canvas.now[i * task.c + k]];
    });
}

enum status queue_vary(const struct images_job *job, int first, int count)
{
    size_t bytes = job->dtype == F32 ? 4 : 2, image = (size_t)job->h * job->w * job->c;
    const struct vary_task task = {
        job->images + first, job->variations + first, job->pictures, (int64_t)job->picture, job->normal,
        job->table, job->h, job->w, job->c, (char *)job->out + (size_t)first * image * bytes,
    };
    cudaStream_t stream = (cudaStream_t)job->stream;
    if (job->dtype == F32) vary_kernel<uint32_t><<<count, threads, BLUR_SHARED, stream>>>(task);
    else vary_kernel<uint16_t><<<count, threads, BLUR_SHARED, stream>>>(task);
    return cuda_status(job->device, cudaGetLastError(), "varying images");
}
