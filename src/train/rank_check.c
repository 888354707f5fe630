#include "train/rank_check.h"

#include <stdlib.h>

#include "base/memory.h"
#include "exec/exec_checks.h"

/* Fingerprints of the tensors of all ranks. */
struct rank_tensors {
    int ranks, stages, count;
    uint64_t *own;               /* [count] */
    uint64_t *all;               /* [ranks][count] */
};

static int ranks_that_have(const struct rank_tensors *tensors, int stage, int tensor, uint64_t fingerprint)
{
    int have = 0;
    for (int rank = stage; rank < tensors->ranks; rank += tensors->stages)
        have += tensors->all[rank * tensors->count + tensor] == fingerprint;
    return have;
}

/* The rank with the most common fingerprint of a tensor; the first one if there are several. */
static int usual_rank(const struct rank_tensors *tensors, int stage, int tensor)
{
    int usual = stage, most = 0;
    for (int rank = stage; rank < tensors->ranks; rank += tensors->stages) {
        int have = ranks_that_have(tensors, stage, tensor, tensors->all[rank * tensors->count + tensor]);
        if (have > most) usual = rank;
        if (have > most) most = have;
    }
    return usual;
}

static enum status compare_stage(const struct rank_tensors *tensors, int stage, int tensor,
                                 const struct exec *exec)
{
    int usual = usual_rank(tensors, stage, tensor);
    for (int rank = stage; rank < tensors->ranks; rank += tensors->stages) {
        const uint64_t *row = tensors->all + rank * tensors->count;
        struct reason name;
        if (row[tensor] == tensors->all[usual * tensors->count + tensor]) continue;
        exec_store_tensor_name(exec, tensor, &name);
        return fail(FAILED, "after step %lld rank %d differs from rank %d, first in %s: the memory or "
                    "processor of one of them is faulty", (long long)exec_state(exec)->step, rank, usual,
                    name.text);
    }
    return OK;
}

static enum status compare(const struct rank_tensors *tensors, const struct exec *exec)
{
    for (int tensor = 0; tensor < tensors->count; tensor++)
        for (int stage = 0; stage < tensors->stages; stage++)
            TRY(compare_stage(tensors, stage, tensor, exec));
    return OK;
}

enum status rank_check(struct comm *comm, int stages, const struct exec *exec)
{
    if (comm_count(comm) == 1) return OK;
    struct rank_tensors tensors = {.ranks = comm_count(comm), .stages = stages};
    tensors.count = exec_store_tensors(exec);
    size_t count = (size_t)tensors.count;
    tensors.own = memory_new(count, sizeof *tensors.own);
    tensors.all = memory_new((size_t)tensors.ranks * count, sizeof *tensors.all);
    enum status status = exec_store_fingerprints(exec, tensors.own);
    if (status == OK) status = comm_all_gather(comm, tensors.own, tensors.all, count * sizeof *tensors.own);
    if (status == OK) status = compare(&tensors, exec);
    free(tensors.own);
    free(tensors.all);
    return status;
}
