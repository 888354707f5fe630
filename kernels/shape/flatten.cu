#include "kernels/support/chunk.cuh"
#include "kernels/support/copy.cuh"

#define TILE 64
#define ROWS 4             /* of a tile that a block moves at once */
#define GRID_MAX 65535     /* of blocks in the grid's second and third dimension */

/* Transposes each image: to[column][row] = from[row][column]. */
template <class W>
__global__ void __launch_bounds__(TILE * ROWS)
flatten_transpose_kernel(W *to, const W *from, int64_t images, int64_t rows, int64_t columns)
{
    __shared__ W tile[TILE][TILE + 4 / sizeof(W)];
    int across = threadIdx.x, down = threadIdx.y;
    int64_t column = (int64_t)blockIdx.x * TILE;
    for (int64_t image = blockIdx.z; image < images; image += gridDim.z)
        for (int64_t row = (int64_t)blockIdx.y * TILE; row < rows; row += (int64_t)gridDim.y * TILE) {
            const W *source = from + (image * rows + row) * columns + column;
            W *target = to + (image * columns + column) * rows + row;
            int high = (int)min((int64_t)TILE, rows - row), wide = (int)min((int64_t)TILE, columns - column);
#pragma unroll 4
            for (int i = down; i < high; i += ROWS)
                if (across < wide) tile[i][across] = source[i * columns + across];
            __syncthreads();
#pragma unroll 4
            for (int i = down; i < wide; i += ROWS)
                if (across < high) target[i * rows + across] = tile[across][i];
            __syncthreads();
        }
}

template <class W>
static void transpose(const struct call *call, const struct tensor *to, const struct tensor *from,
                      int64_t images, int64_t rows, int64_t columns)
{
    int64_t wide = div_up(columns, (int64_t)TILE), high = div_up(rows, (int64_t)TILE);
    dim3 blocks((unsigned)wide, (unsigned)(high < GRID_MAX ? high : GRID_MAX),
                (unsigned)(images < GRID_MAX ? images : GRID_MAX));
    flatten_transpose_kernel<<<blocks, dim3(TILE, ROWS), 0, stream_of(call)>>>((W *)to->data,
                                                                               (const W *)from->data, images,
                                                                               rows, columns);
}

/* `image` is the shape of what is flattened; rows and columns are of one image of `from`. */
static enum status flatten_copy(const struct call *call, const struct tensor *to, const struct tensor *from,
                                struct shape image, int64_t rows, int64_t columns)
{
    if (shape_count(image) == 0) return OK;
    if (rows > 1 && columns > 1) {
        if (dtype_bytes(to->dtype) == 2) transpose<uint16_t>(call, to, from, image.n, rows, columns);
        else transpose<uint32_t>(call, to, from, image.n, rows, columns);
        return launched(call);
    }
    return copy_tensor(call, to, from);
}

static enum status flatten_forward(const struct call *call)
{
    struct shape x = call->x[0].shape;
    return flatten_copy(call, &call->y, &call->x[0], x, x.h * x.w, x.c);
}

static enum status flatten_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct shape x = call->d_x[0].shape;
    return flatten_copy(call, &call->d_x[0], &call->d_y, x, x.c, x.h * x.w);
}

const struct op_code flatten_cuda = {.forward = flatten_forward, .backward = flatten_backward};
