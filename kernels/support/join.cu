#include "kernels/support/join.cuh"

#include "kernels/support/columns.cuh"

constexpr int join_in_flight = 4;

/* The tensor from which the side follows. */
enum join_side { SIDE_NONE, SIDE_Y, SIDE_MASK };

template <class T, enum join_side by, bool two> struct joining {
    static constexpr int width = pack<T>::count, sums = 1, in_flight = join_in_flight, blocks = 2;
    struct cells {
        chunk<T, width> d_y, more, y;
        uint8_t mask;
    };
    struct join of;

    __device__ void begin(const joining &, int) {}
    __device__ static chunk<T, width> cell(const void *from, int64_t at)
    {
        return *(const chunk<T, width> *)((const T *)from + at);
    }
    __device__ void load(cells &to, int64_t, int64_t at) const
    {
        to.d_y = cell(of.d_y.data, at);
        if (two) to.more = cell(of.d_y_more, at);
        if (by == SIDE_Y) to.y = cell(of.y, at);
        if (by == SIDE_MASK) to.mask = of.mask[at / 8];
    }
    __device__ void add(const cells &in, int64_t, int64_t at, float (&sum)[sums][width]) const
    {
        chunk<T, width> dz;
#pragma unroll
        for (int i = 0; i < width; i++) {
            float d = to_float(in.d_y.at[i]), y = by == SIDE_Y ? to_float(in.y.at[i]) : 0;
            if (two) d = to_float(from_float<T>(d + to_float(in.more.at[i])));
            if (by == SIDE_MASK && !(in.mask >> i & 1)) d = 0;
            if (by == SIDE_Y && (y <= 0 || y >= of.top)) d = 0;
            dz.at[i] = from_float<T>(d);
            sum[0][i] += d;
        }
        if (of.dz) *(chunk<T, width> *)((T *)of.dz + at) = dz;
    }
};

size_t join_workspace(const struct tensor *d_y)
{
    int width = (int)(16 / dtype_bytes(d_y->dtype));
    return columns_bytes(columns_open(d_y->dtype, d_y->shape, width, join_in_flight), 1);
}

template <class T, enum join_side by>
static enum status join_by(const struct call *call, const struct join *join, float *parts)
{
    enum dtype dtype = join->d_y.dtype;
    struct shape shape = join->d_y.shape;
    if (join->d_y_more)
        return columns_run(call, joining<T, by, true>{*join}, dtype, shape, parts, join->sums);
    return columns_run(call, joining<T, by, false>{*join}, dtype, shape, parts, join->sums);
}

enum status join_run(const struct call *call, const struct join *join, float *parts)
{
    return with_type(join->d_y.dtype, [&](auto type) {
        using T = decltype(type);
        if (join->mask) return join_by<T, SIDE_MASK>(call, join, parts);
        return join->y ? join_by<T, SIDE_Y>(call, join, parts) : join_by<T, SIDE_NONE>(call, join, parts);
    });
}
