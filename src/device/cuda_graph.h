/* cuda_graph.h: changes to a captured graph before it is instantiated. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Nodes that fill a little memory, which libraries clear before their kernels, or copy a little of it to the
 * host become kernels, which start within a microsecond of what they wait for, other nodes after several;
 * those that follow one another become one. `filled`: how many. */
cudaError_t cuda_graph_fill(cudaGraph_t graph, int *filled);

#ifdef __cplusplus
}
#endif
