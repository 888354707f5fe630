#include "device/cuda_graph.h"

#include <stdint.h>
#include <stdlib.h>

#define THREADS 256
#define BYTES_MAX (1 << 20)      /* of a fill; larger ones are as fast as they are */

__global__ void __launch_bounds__(THREADS) fill_kernel(uint32_t *to, uint32_t value, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) to[i] = value;
}

/* The value of four bytes; false where the node does not fill whole words in a row. */
static bool fill_words(const cudaMemsetParams *fill, uint32_t *value, int64_t *count)
{
    size_t bytes = fill->width * fill->elementSize;
    if (fill->height != 1 || bytes == 0 || bytes > BYTES_MAX || bytes % 4 || (uintptr_t)fill->dst % 4)
        return false;
    *value = fill->value;
    if (fill->elementSize == 1) *value = (fill->value & 0xff) * 0x01010101u;
    if (fill->elementSize == 2) *value = (fill->value & 0xffff) * 0x00010001u;
    *count = (int64_t)(bytes / 4);
    return true;
}

#if CUDART_VERSION >= 13000
#define PLAIN_EDGES NULL,
#else
#define PLAIN_EDGES
#endif

/* The nodes that a node waits for, and those that wait for it. */
struct edges {
    cudaGraphNode_t *before, *after;
    size_t before_count, after_count;
};

/* False where edges are of a kind that cannot be made again. */
static bool edges_find(cudaGraphNode_t node, struct edges *edges)
{
    size_t *before = &edges->before_count, *after = &edges->after_count;
    bool found = cudaGraphNodeGetDependencies(node, NULL, PLAIN_EDGES before) == cudaSuccess &&
                 cudaGraphNodeGetDependentNodes(node, NULL, PLAIN_EDGES after) == cudaSuccess;
    edges->before = (cudaGraphNode_t *)calloc(*before + 1, sizeof *edges->before);
    edges->after = (cudaGraphNode_t *)calloc(*after + 1, sizeof *edges->after);
    found = found && edges->before && edges->after &&
            (*before == 0 ||
             cudaGraphNodeGetDependencies(node, edges->before, PLAIN_EDGES before) == cudaSuccess) &&
            (*after == 0 ||
             cudaGraphNodeGetDependentNodes(node, edges->after, PLAIN_EDGES after) == cudaSuccess);
    cudaGetLastError();
    return found;
}

static void edges_free(struct edges *edges)
{
    free(edges->before);
    free(edges->after);
}

/* The runtime does not know all nodes that libraries make by the driver: those stay as they are. */
static bool is_memset(cudaGraphNode_t node, cudaMemsetParams *fill)
{
    enum cudaGraphNodeType type;
    bool is = cudaGraphNodeGetType(node, &type) == cudaSuccess && type == cudaGraphNodeTypeMemset &&
              cudaGraphMemsetNodeGetParams(node, fill) == cudaSuccess;
    cudaGetLastError();
    return is;
}

/* Puts a kernel in the place of a node, between `before` and `after`. */
static cudaError_t replace(cudaGraph_t graph, cudaGraphNode_t node, const struct edges *edges,
                           cudaKernelNodeParams *params)
{
    cudaGraphNode_t kernel;
    cudaError_t error = cudaGraphAddKernelNode(&kernel, graph, edges->before, edges->before_count, params);
    for (size_t i = 0; error == cudaSuccess && i < edges->after_count; i++)
        error = cudaGraphAddDependencies(graph, &kernel, &edges->after[i], PLAIN_EDGES 1);
    return error == cudaSuccess ? cudaGraphDestroyNode(node) : error;
}

static cudaError_t fill_node(cudaGraph_t graph, cudaGraphNode_t node, int *filled)
{
    cudaMemsetParams fill;
    struct edges edges = {};
    uint32_t value;
    int64_t count;
    cudaError_t error = cudaSuccess;
    if (is_memset(node, &fill) && fill_words(&fill, &value, &count) && edges_find(node, &edges)) {
        void *arguments[] = {&fill.dst, &value, &count};
        cudaKernelNodeParams params = {};
        params.func = (void *)fill_kernel;
        params.gridDim = dim3((unsigned)((count + THREADS - 1) / THREADS));
        params.blockDim = dim3(THREADS);
        params.kernelParams = arguments;
        error = replace(graph, node, &edges, &params);
        ++*filled;
    }
    edges_free(&edges);
    return error;
}

cudaError_t cuda_graph_fill(cudaGraph_t graph, int *filled)
{
    size_t count = 0;
    *filled = 0;
    cudaError_t error = cudaGraphGetNodes(graph, NULL, &count);
    cudaGraphNode_t *nodes = (cudaGraphNode_t *)calloc(count + 1, sizeof *nodes);
    if (!nodes) return cudaErrorMemoryAllocation;
    if (error == cudaSuccess) error = cudaGraphGetNodes(graph, nodes, &count);
    for (size_t i = 0; error == cudaSuccess && i < count; i++) error = fill_node(graph, nodes[i], filled);
    free(nodes);
    return error;
}
