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

/* The nodes that `node` waits for, or that wait for it; the caller frees them. */
static cudaError_t neighbours(cudaGraphNode_t node, bool before, cudaGraphNode_t **found, size_t *count)
{
    *count = 0;
    cudaError_t error = before ? cudaGraphNodeGetDependencies(node, NULL, PLAIN_EDGES count)
                               : cudaGraphNodeGetDependentNodes(node, NULL, PLAIN_EDGES count);
    *found = (cudaGraphNode_t *)calloc(*count + 1, sizeof **found);
    if (!*found) return cudaErrorMemoryAllocation;
    if (error != cudaSuccess || *count == 0) return error;
    return before ? cudaGraphNodeGetDependencies(node, *found, PLAIN_EDGES count)
                  : cudaGraphNodeGetDependentNodes(node, *found, PLAIN_EDGES count);
}

static cudaError_t follow(cudaGraph_t graph, cudaGraphNode_t node, cudaGraphNode_t kernel)
{
    cudaGraphNode_t *after;
    size_t count;
    cudaError_t error = neighbours(node, false, &after, &count);
    for (size_t i = 0; error == cudaSuccess && i < count; i++)
        error = cudaGraphAddDependencies(graph, &kernel, &after[i], PLAIN_EDGES 1);
    free(after);
    return error;
}

static cudaError_t replace(cudaGraph_t graph, cudaGraphNode_t node, uint32_t *to, uint32_t value,
                           int64_t count)
{
    void *arguments[] = {&to, &value, &count};
    cudaKernelNodeParams params = {};
    cudaGraphNode_t *before, kernel;
    size_t waits;
    params.func = (void *)fill_kernel;
    params.gridDim = dim3((unsigned)((count + THREADS - 1) / THREADS));
    params.blockDim = dim3(THREADS);
    params.kernelParams = arguments;
    cudaError_t error = neighbours(node, true, &before, &waits);
    if (error == cudaSuccess) error = cudaGraphAddKernelNode(&kernel, graph, before, waits, &params);
    if (error == cudaSuccess) error = follow(graph, node, kernel);
    free(before);
    return error == cudaSuccess ? cudaGraphDestroyNode(node) : error;
}

static cudaError_t fill_node(cudaGraph_t graph, cudaGraphNode_t node, int *filled)
{
    enum cudaGraphNodeType type;
    cudaMemsetParams fill;
    uint32_t value;
    int64_t count;
    cudaError_t error = cudaGraphNodeGetType(node, &type);
    if (error != cudaSuccess || type != cudaGraphNodeTypeMemset) return error;
    error = cudaGraphMemsetNodeGetParams(node, &fill);
    if (error != cudaSuccess || !fill_words(&fill, &value, &count)) return error;
    ++*filled;
    return replace(graph, node, (uint32_t *)fill.dst, value, count);
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
