#include "kernels/support/columns.cuh"

/* So many rows, side by side, are one of whole packs: rows of odd lengths, such as 21 numbers, are read like
 * that. 1 if it does not divide the rows. */
static int side_by_side(const struct tensor *y)
{
    int pack = 16 / (int)dtype_bytes(y->dtype), rows = 1;
    while (rows * y->shape.c % pack != 0) rows *= 2;
    return shape_count(y->shape) / y->shape.c % rows ? 1 : rows;
}

static struct shape shape_beside(struct shape shape, int beside)
{
    return shape_nhwc(1, 1, shape_count(shape) / shape.c / beside, shape.c * beside);
}

/* The fewer rows are in flight, the more blocks there may be. */
static size_t workspace_of(enum dtype dtype, struct shape shape, int sums)
{
    int pack = 16 / (int)dtype_bytes(dtype), width = shape.c % pack ? 1 : pack;
    return columns_bytes(columns_open(dtype, shape, width, 1), sums);
}

size_t columns_workspace(const struct tensor *y, bool squares)
{
    size_t alone = workspace_of(y->dtype, y->shape, squares ? 2 : 1);
    size_t beside = workspace_of(y->dtype, shape_beside(y->shape, side_by_side(y)), 1);
    return alone > beside ? alone : beside;
}

enum summing { SUMS, SUMS_AND_SQUARES, SUMS_WHERE, SUMS_OF_PICKED };

/* The rows of y; with numbers, only where those are not left_out; or, of larger images y, the pixels that a
 * stride picks, which are copied. */
template <class T, int w, enum summing what> struct summands {
    static constexpr int width = w, sums = what == SUMS_AND_SQUARES ? 2 : 1, in_flight = 4;
    static constexpr int blocks = 4;
    struct cells {
        chunk<T, width> y;
        chunk<uint8_t, what == SUMS_WHERE ? width : 1> numbers;
    };
    const T *y;
    const uint8_t *numbers;
    int left_out, channel;
    T *copy;
    struct pick pick;

    __device__ void begin(const summands &, int first) { channel = first; }
    /* The offset in y of a row of the copy. */
    __device__ int64_t picked(unsigned row) const
    {
        unsigned line = row / pick.out[1], n = line / pick.out[0];
        unsigned y = line % pick.out[0] * pick.stride[0], x = row % pick.out[1] * pick.stride[1];
        return (((int64_t)n * pick.in[0] + y) * pick.in[1] + x) * pick.c + channel;
    }
    __device__ void load(cells &to, int64_t row, int64_t at) const
    {
        to.y = *(const chunk<T, width> *)(y + (what == SUMS_OF_PICKED ? picked((unsigned)row) : at));
        if constexpr (what == SUMS_WHERE) to.numbers = *(const chunk<uint8_t, width> *)(numbers + at);
    }
    __device__ void add(const cells &in, int64_t, int64_t at, float (&sum)[sums][width]) const
    {
        if constexpr (what == SUMS_OF_PICKED) *(chunk<T, width> *)(copy + at) = in.y;
#pragma unroll
        for (int i = 0; i < width; i++) {
            float value = to_float(in.y.at[i]);
            if constexpr (what == SUMS_WHERE)
                if (in.numbers.at[i] == left_out) continue;
            sum[0][i] += value;
            if constexpr (what == SUMS_AND_SQUARES) sum[1][i] = fmaf(value, value, sum[1][i]);
        }
    }
};

/* A block for 32 of the sums. */
__global__ static void columns_finish_kernel(float *first, float *second, struct column_parts parts)
{
    __shared__ float sums[32][33];
    int count = parts.sums * parts.channels, i = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    wait_for_last();
    let_next_begin();
    if (i < count)
        for (int part = threadIdx.y; part < parts.count; part += 32)
            sum += parts.at[(int64_t)part * count + i];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = sums[threadIdx.x][threadIdx.y];              /* now a warp holds the parts of one element */
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    i = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x > 0 || i >= count) return;
    if (i >= parts.channels) first = second, i -= parts.channels;
    if (first) first[i] = sum;
}

enum status columns_finish(const struct call *call, const struct column_parts &parts, float *first,
                           float *second)
{
    unsigned blocks = (unsigned)div_up(parts.sums * parts.channels, 32);
    return launch_behind(call, columns_finish_kernel, blocks, dim3(32, 32), first, second, parts);
}

template <enum summing what>
static enum status sums_of(const struct call *call, const struct tensor *y, float *to, const uint8_t *numbers,
                           int left_out)
{
    int beside = what == SUMS ? side_by_side(y) : 1;
    struct shape shape = shape_beside(y->shape, beside);
    return with_chunk(y->dtype, shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        summands<T, decltype(wide)::number, what> of = {
            .y = (const T *)y->data, .numbers = numbers, .left_out = left_out};
        struct columns l = columns_open(y->dtype, shape, of.width, of.in_flight);
        struct column_parts parts;
        TRY(columns_sweep(call, of, l, 1, (float *)call->workspace, &parts));
        parts.count *= beside, parts.channels /= beside;
        return columns_finish(call, parts, to, to + y->shape.c);
    });
}

enum status columns_sum(const struct call *call, const struct tensor *y, float *to, bool squares)
{
    return squares ? sums_of<SUMS_AND_SQUARES>(call, y, to, NULL, 0) : sums_of<SUMS>(call, y, to, NULL, 0);
}

enum status columns_sum_where(const struct call *call, const struct tensor *y, float *to,
                              const uint8_t *numbers, int left_out)
{
    return sums_of<SUMS_WHERE>(call, y, to, numbers, left_out);
}

enum status columns_sum_picked(const struct call *call, const struct pick *p, void *picked, const void *x,
                               float *to)
{
    return with_chunk(p->dtype, p->c, [&](auto type, auto wide) {
        using T = decltype(type);
        summands<T, decltype(wide)::number, SUMS_OF_PICKED> of = {
            .y = (const T *)x, .copy = (T *)picked, .pick = *p};
        struct shape shape = shape_nhwc(p->n, p->out[0], p->out[1], p->c);
        return columns_run(call, of, p->dtype, shape, (float *)call->workspace, to);
    });
}
