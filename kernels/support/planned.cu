#include "kernels/support/planned.cuh"

#include "kernels/support/columns.cuh"
#include "kernels/support/join.cuh"

static bool is_left(const struct call *call, const struct kernel_plan *plan, enum epilogue_kind kind)
{
    return call_epilogue(call, kind) && !(plan->epilogues & AS_BIT(kind));
}

/* True if another gradient is to be added to d_x[0], which is masked then, and added up. */
static bool joins(const struct call *call, const struct kernel_plan *plan)
{
    return call_operand(call, OPERAND_D_X_ADDEND) && is_left(call, plan, EPILOGUE_ADD) &&
           !planned_adds_bias(call);
}

/* True if the other gradient has every second pixel in both directions. */
static bool is_picked(const struct call *call)
{
    return shape_count(call_operand(call, OPERAND_D_X_ADDEND)->shape) < shape_count(call->d_x[0].shape);
}

size_t epilogues_workspace(const struct call *call, const struct kernel_plan *plan)
{
    if (joins(call, plan))
        return workspace_align(join_workspace(&call->d_x[0])) +
               (is_picked(call) ? (size_t)tensor_bytes(&call->d_x[0]) : 0);
    if (!is_left(call, plan, EPILOGUE_MOMENTS)) return 0;
    return columns_workspace(&call->y, true);
}

static enum status join_addend(const struct call *call)
{
    const struct tensor *d_x = &call->d_x[0];
    struct join join = {.d_y = *d_x, .d_y_more = call_data(call, OPERAND_D_X_ADDEND),
                        .mask = (const uint8_t *)call_data(call, OPERAND_MASK), .dz = d_x->data,
                        .sums = (float *)call_data(call, OPERAND_D_X_SUMS)};
    if (is_picked(call)) {
        struct pick pick = pick_of(d_x->dtype, d_x->shape, call_operand(call, OPERAND_D_X_ADDEND)->shape, 2);
        void *whole = (char *)call->workspace + workspace_align(join_workspace(d_x));
        TRY(copy_spread(call, &pick, whole, join.d_y_more));
        join.d_y_more = whole;
    }
    return join_run(call, &join, (float *)call->workspace);
}

/* y + bias of `chunks` chunks a pixel; without a bias relu of y. */
template <class T, int width>
__global__ void planned_sweep_kernel(T *y, int64_t count, const T *bias, unsigned chunks)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        chunk<T, width> some = *(const chunk<T, width> *)(y + i * width), more = {};
        if (bias) more = ((const chunk<T, width> *)bias)[(uint64_t)i % chunks];
        for (int k = 0; k < width; k++) {
            if (bias) some.at[k] = from_float<T>(to_float(some.at[k]) + to_float(more.at[k]));
            else if (to_float(some.at[k]) <= 0) some.at[k] = from_float<T>(0);
        }
        *(chunk<T, width> *)(y + i * width) = some;
    }
}

static enum status sweep(const struct call *call, const struct tensor *y, const void *bias)
{
    return with_chunk(y->dtype, y->shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        int64_t count = shape_count(y->shape) / width;
        planned_sweep_kernel<T, width><<<grid_of(call, count, 256, 4), 256, 0, stream_of(call)>>>(
            (T *)y->data, count, (const T *)bias, (unsigned)(y->shape.c / width));
        return launched(call);
    });
}

enum status planned_run(const struct call *call, const struct kernel_plan *plan)
{
    TRY(plan->algorithm->run(call, plan));
    if (joins(call, plan)) return join_addend(call);
    if (is_left(call, plan, EPILOGUE_RELU)) TRY(sweep(call, &call->y, NULL));
    if (is_left(call, plan, EPILOGUE_ADD) && planned_adds_bias(call))
        return sweep(call, &call->d_x[0], call_data(call, OPERAND_D_X_ADDEND));
    if (!is_left(call, plan, EPILOGUE_MOMENTS)) return OK;
    return columns_sum(call, &call->y, (float *)call_data(call, OPERAND_Y_MOMENTS), true);
}

enum status planned_call_run(const struct call *call)
{
    if (call->phase == PHASE_BACKWARD_DATA && !call->d_x[0].data) return OK;
    return planned_run(call, call->kernel_plan);
}

enum status call_cudnn(const struct call *call, cudnnHandle_t *handle)
{
    if (!call->library) return cuda_cudnn(call->device, call->stream, handle);
    cudaStream_t current;
    *handle = (cudnnHandle_t)call->library;
    bool given = !cudnn()->cudnnGetStream(*handle, &current) && current == stream_of(call);
    return given || !cudnn()->cudnnSetStream(*handle, stream_of(call)) ? OK : NO_DEVICE;
}
