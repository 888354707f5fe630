/* elementwise_sums.cuh: gradients of elementwise ops and, in the same sweep, their sums by channel, which the
 * bias of the op in front needs, and y, if that is wanted again. */
#pragma once

#include "kernels/elementwise/elementwise.cuh"
#include "kernels/support/columns.cuh"

/* d_x = function(d_y, x); with `remakes`, function(d_y, x, &y). */
template <class T, int w, bool remakes, class F> struct gradient_sums {
    static constexpr int width = w, sums = 1, in_flight = 3, blocks = 3;
    struct cells {
        chunk<T, width> d_y, x;
    };
    T *d_x, *again;
    const T *d_y, *x;
    F function;

    __device__ void begin(const gradient_sums &, int) {}
    __device__ void load(cells &to, int64_t, int64_t at) const
    {
        to = {*(const chunk<T, width> *)(d_y + at), *(const chunk<T, width> *)(x + at)};
    }
    __device__ void add(const cells &in, int64_t, int64_t at, float (&sum)[sums][width]) const
    {
        chunk<T, width> out, y;
#pragma unroll
        for (int e = 0; e < width; e++) {
            float own = to_float(in.d_y.at[e]), value = to_float(in.x.at[e]), result;
            if constexpr (remakes) out.at[e] = from_float<T>(function(own, value, &result));
            else out.at[e] = from_float<T>(function(own, value));
            if constexpr (remakes) y.at[e] = from_float<T>(result);
            sum[0][e] += to_float(out.at[e]);
        }
        *(chunk<T, width> *)(d_x + at) = out;
        if constexpr (remakes) *(chunk<T, width> *)(again + at) = y;
    }
};

/* op_code.workspace of code that writes D_X_SUMS. */
static size_t map_sums_workspace(const struct call *call)
{
    const struct tensor *d_x = &call->d_x[0];
    bool wanted = call_operand(call, OPERAND_D_X_SUMS) && d_x->shape.rank > 0;
    return wanted && shape_count(d_x->shape) > 0 ? columns_workspace(d_x, false) : 0;
}

/* d_x = function(d_y, value), and its sums, if the call has them; with `remakes`, Y_RECOMPUTED, too. d_x may
 * be d_y. */
template <bool remakes = false, class F>
static enum status map_with_sums(const struct call *call, const struct tensor *value, F function)
{
    const struct tensor *d_x = &call->d_x[0];
    return with_chunk(d_x->dtype, d_x->shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        float *sums = (float *)call_data(call, OPERAND_D_X_SUMS);
        gradient_sums<T, decltype(wide)::number, remakes, F> of = {
            (T *)d_x->data, (T *)call_data(call, OPERAND_Y_RECOMPUTED), (const T *)call->d_y.data,
            (const T *)value->data, function};
        return columns_run(call, of, d_x->dtype, d_x->shape, sums ? (float *)call->workspace : NULL, sums);
    });
}
