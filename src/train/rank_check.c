#include "train/rank_check.h"

#include <stdlib.h>

#include "base/memory.h"

/* Fingerprints of the tensors of all ranks. */
struct rank_tensors {
    int ranks, count;
    uint64_t *own;               /* [count] */
    uint64_t *all;               /* [ranks][count] */
};

static int ranks_that_have(const struct rank_tensors *tensors, int tensor, uint64_t fingerprint)
{
    int have = 0;
    for (int rank = 0; rank < tensors->ranks; rank++)
        have += tensors->all[rank * tensors->count + tensor] == fingerprint;
    return have;
}

/* The rank whose tensor is the one that most have; of equally many, the first one. */
static int usual_rank(const struct rank_tensors *tensors, int tensor)
{
    int usual = 0, most = 0;
    for (int rank = 0; rank < tensors->ranks; rank++) {
        int have = ranks_that_have(tensors, tensor, tensors->all[rank * tensors->count + tensor]);
        if (have > most) usual = rank;
        if (have > most) most = have;
    }
    return usual;
}

static enum status compare(const struct rank_tensors *tensors, const struct exec *exec)
{
    for (int tensor = 0; tensor < tensors->count; tensor++) {
        int usual = usual_rank(tensors, tensor);
        for (int rank = 0; rank < tensors->ranks; rank++) {
            const uint64_t *row = tensors->all + rank * tensors->count;
            struct reason name;
            if (row[tensor] == tensors->all[usual * tensors->count + tensor]) continue;
            exec_store_tensor_name(exec, tensor, &name);
            return fail(FAILED, "after step %lld rank %d differs from rank %d, first in %s: the memory or "
                        "processor of one of them is faulty", (long long)exec_state(exec)->step, rank, usual,
                        name.text);
        }
    }
    return OK;
}

enum status rank_check(struct comm *comm, const struct exec *exec)
{
    if (comm_count(comm) == 1) return OK;
    struct rank_tensors tensors = {.ranks = comm_count(comm), .count = exec_store_tensors(exec)};
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
