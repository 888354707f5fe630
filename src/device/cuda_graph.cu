#include "device/cuda_graph.h"

#include <stdint.h>
#include <stdlib.h>

#define THREADS 256
#define FILL_MAX (1 << 20)       /* bytes of a fill, of a copy: larger ones are as fast as they are */
#define COPY_MAX (64 << 10)
#define FILLS 8                  /* of a kernel, copies among them */

/* Words in a row: a value or, unless `from` is NULL, a copy. */
struct fill {
    uint32_t *to;
    const uint32_t *from;
    uint32_t value, count;
};

struct fills {
    struct fill at[FILLS];
};

__global__ void __launch_bounds__(THREADS) fill_kernel(const __grid_constant__ struct fills fills)
{
    const struct fill &fill = fills.at[blockIdx.y];
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < fill.count) fill.to[i] = fill.from ? fill.from[i] : fill.value;
}

static bool is_words(const void *data, size_t bytes)
{
    return bytes > 0 && bytes % 4 == 0 && (uintptr_t)data % 4 == 0;
}

/* False where the node does not fill whole words in a row. */
static bool fill_words(const cudaMemsetParams *memset, struct fill *fill)
{
    size_t bytes = memset->width * memset->elementSize;
    if (memset->height != 1 || bytes > FILL_MAX || !is_words(memset->dst, bytes)) return false;
    *fill = {(uint32_t *)memset->dst, NULL, memset->value, (uint32_t)(bytes / 4)};
    if (memset->elementSize == 1) fill->value = (memset->value & 0xff) * 0x01010101u;
    if (memset->elementSize == 2) fill->value = (memset->value & 0xffff) * 0x00010001u;
    return true;
}

/* False where kernels do not reach the host memory that the node copies words in a row to. */
static bool copy_words(const cudaMemcpy3DParms *copy, struct fill *fill)
{
    struct cudaPointerAttributes to;
    const cudaExtent *extent = &copy->extent;
    if (copy->kind != cudaMemcpyDeviceToHost || copy->srcArray || copy->dstArray || extent->height != 1 ||
        extent->depth != 1 || extent->width > COPY_MAX)
        return false;
    char *dst = (char *)copy->dstPtr.ptr + copy->dstPos.x;
    const char *src = (const char *)copy->srcPtr.ptr + copy->srcPos.x;
    if (!is_words(dst, extent->width) || !is_words(src, extent->width) ||
        cudaPointerGetAttributes(&to, dst) != cudaSuccess || to.devicePointer != dst)
        return false;
    *fill = {(uint32_t *)dst, (const uint32_t *)src, 0, (uint32_t)(extent->width / 4)};
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
static bool is_fill(cudaGraphNode_t node, struct fill *fill)
{
    enum cudaGraphNodeType type;
    cudaMemsetParams memset;
    cudaMemcpy3DParms copy;
    bool is = cudaGraphNodeGetType(node, &type) == cudaSuccess;
    if (is && type == cudaGraphNodeTypeMemset)
        is = cudaGraphMemsetNodeGetParams(node, &memset) == cudaSuccess && fill_words(&memset, fill);
    else if (is && type == cudaGraphNodeTypeMemcpy)
        is = cudaGraphMemcpyNodeGetParams(node, &copy) == cudaSuccess && copy_words(&copy, fill);
    else
        is = false;
    cudaGetLastError();
    return is;
}

/* Nodes one behind the other, with nothing between them, that one kernel replaces. */
struct chain {
    cudaGraphNode_t nodes[FILLS];
    struct fills fills;
    int count;
    struct edges edges;              /* before the first, after the last */
};

static bool overlaps(const uint32_t *a, uint32_t count, const struct fill *b)
{
    return a && a < b->to + b->count && b->to < a + count;
}

/* The order of what a kernel fills is not known. */
static bool may_join(const struct chain *chain, const struct fill *fill, const struct edges *edges)
{
    if (chain->count == 0) return true;
    if (chain->count == FILLS || edges->before_count != 1) return false;
    for (int i = 0; i < chain->count; i++) {
        const struct fill *other = &chain->fills.at[i];
        if (overlaps(fill->to, fill->count, other) || overlaps(fill->from, fill->count, other) ||
            overlaps(other->from, other->count, fill))
            return false;
    }
    return true;
}

static bool chain_add(struct chain *chain, cudaGraphNode_t node)
{
    struct fill fill;
    struct edges edges = {};
    bool joins = is_fill(node, &fill) && edges_find(node, &edges) && may_join(chain, &fill, &edges);
    if (joins) {
        if (chain->count > 0) {
            struct edges between = {.before = edges.before, .after = chain->edges.after};
            edges.before = chain->edges.before;
            edges.before_count = chain->edges.before_count;
            edges_free(&between);
        }
        chain->edges = edges;
        chain->nodes[chain->count] = node;
        chain->fills.at[chain->count++] = fill;
    } else {
        edges_free(&edges);
    }
    return joins;
}

static unsigned chain_blocks(const struct chain *chain)
{
    uint32_t most = 0;
    for (int i = 0; i < chain->count; i++)
        if (chain->fills.at[i].count > most) most = chain->fills.at[i].count;
    return (most + THREADS - 1) / THREADS;
}

static cudaError_t chain_replace(cudaGraph_t graph, struct chain *chain)
{
    cudaGraphNode_t kernel;
    void *arguments[] = {&chain->fills};
    cudaKernelNodeParams params = {};
    params.func = (void *)fill_kernel;
    params.gridDim = dim3(chain_blocks(chain), (unsigned)chain->count);
    params.blockDim = dim3(THREADS);
    params.kernelParams = arguments;
    const struct edges *edges = &chain->edges;
    cudaError_t error = cudaGraphAddKernelNode(&kernel, graph, edges->before, edges->before_count, &params);
    for (size_t i = 0; error == cudaSuccess && i < edges->after_count; i++)
        error = cudaGraphAddDependencies(graph, &kernel, &edges->after[i], PLAIN_EDGES 1);
    for (int i = 0; error == cudaSuccess && i < chain->count; i++)
        error = cudaGraphDestroyNode(chain->nodes[i]);
    return error;
}

/* Nodes from `at` on; those that are replaced become NULL. */
static cudaError_t fill_nodes(cudaGraph_t graph, cudaGraphNode_t *at, cudaGraphNode_t *end, int *filled)
{
    struct chain chain = {};
    cudaError_t error = cudaSuccess;
    bool more = *at && chain_add(&chain, *at);
    while (more && chain.edges.after_count == 1) more = chain_add(&chain, chain.edges.after[0]);
    if (chain.count > 0) error = chain_replace(graph, &chain);
    for (int i = 0; i < chain.count; i++)
        for (cudaGraphNode_t *node = at; node < end; node++)
            if (*node == chain.nodes[i]) *node = NULL;
    *filled += chain.count;
    edges_free(&chain.edges);
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
    for (size_t i = 0; error == cudaSuccess && i < count; i++)
        error = fill_nodes(graph, &nodes[i], nodes + count, filled);
    free(nodes);
    return error;
}
