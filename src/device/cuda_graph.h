/* cuda_graph.h: what is changed in a captured graph before it is made executable. */
#pragma once

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory that libraries clear before their kernels: nodes that fill a little memory become kernels, which
 * start within a microsecond of what they wait for, memset nodes after several. `filled`: how many. */
cudaError_t cuda_graph_fill(cudaGraph_t graph, int *filled);

#ifdef __cplusplus
}
#endif
