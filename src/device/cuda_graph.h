/* cuda_graph.h: changes to a captured graph before it is instantiated. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces small memsets, which libraries make before their kernels, and small copies to the host by kernels,
 * which start within a microsecond after their dependencies, other nodes after several; consecutive ones
 * become one kernel. `filled`: their number. */
cudaError_t cuda_graph_fill(cudaGraph_t graph, int *filled);

#ifdef __cplusplus
}
#endif
