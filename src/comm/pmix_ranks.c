#include "comm/pmix_ranks.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

/* MPI, which also supports several hosts, could not initialise PMIx again after this. */
#if defined HAVE_PMIX && !defined HAVE_MPI
#include <pmix.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/library.h"
#include "comm/host_file.h"
#include "comm/shared.h"
#include "comm/shared_block.h"

#define TIMEOUT_SECONDS 600
#define KEY "amptrain.block"
#define FUNCTIONS(X)                                                                                   \
    X(PMIx_Init) X(PMIx_Finalize) X(PMIx_Put) X(PMIx_Commit) X(PMIx_Fence) X(PMIx_Get) X(PMIx_Error_string)

struct functions {
    FUNCTIONS(LIBRARY_MEMBER)
};
static const char *const names[] = {FUNCTIONS(LIBRARY_NAME) NULL};

struct pmix {
    pmix_proc_t own;
    struct functions call;
};

static enum status pmix_status(const struct pmix *pmix, pmix_status_t result, const char *trying)
{
    if (result == PMIX_SUCCESS) return OK;
    return fail(FAILED, "PMIx: %s failed: %s", trying, pmix->call.PMIx_Error_string(result));
}

/* A number that PMIx has for a rank or, with PMIX_RANK_WILDCARD, for the job; 0: none. */
static uint32_t number_of(const struct pmix *pmix, pmix_rank_t rank, const char *key)
{
    pmix_proc_t of = pmix->own;
    pmix_value_t *value = NULL;
    of.rank = rank;
    if (pmix->call.PMIx_Get(&of, key, NULL, 0, &value) != PMIX_SUCCESS || !value) return 0;
    uint32_t number = value->type == PMIX_UINT32 ? value->data.uint32 : 0;
    free(value);
    return number;
}

/* Creates the first rank's block and publishes it, so that the others can open the same file. */
static enum status block_give(const struct pmix *pmix, uint32_t count, int *block)
{
    struct host_file_offer offer = {.descriptor = -1};
    if (pmix->own.rank == 0) {
        TRY(shared_block_create((int)count, block));
        offer = host_file_offer(*block);
    }
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT, .data.bo = {(char *)&offer, sizeof offer}};
    TRY(pmix_status(pmix, pmix->call.PMIx_Put(PMIX_GLOBAL, KEY, &value), "offering memory"));
    TRY(pmix_status(pmix, pmix->call.PMIx_Commit(), "offering memory"));
    return pmix_status(pmix, pmix->call.PMIx_Fence(NULL, 0, NULL, 0), "meeting the other ranks");
}

static enum status block_take(const struct pmix *pmix, int *block)
{
    pmix_proc_t first = pmix->own;
    pmix_value_t *value = NULL;
    struct host_file_offer offer;
    first.rank = 0;
    TRY(pmix_status(pmix, pmix->call.PMIx_Get(&first, KEY, NULL, 0, &value),
                    "finding the first rank's memory"));
    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != sizeof offer)
        return fail(FAILED, "PMIx: the first rank runs another version of amptrain");
    memcpy(&offer, value->data.bo.bytes, sizeof offer);
    free(value->data.bo.bytes);
    free(value);
    *block = host_file_accept(&offer);
    return *block >= 0 ? OK : fail(FAILED, "the first rank's memory cannot be opened: do the ranks run in "
                                   "separate containers?");
}

static enum status pmix_join(const struct pmix *pmix, double timeout, struct comm **comm)
{
    uint32_t count = number_of(pmix, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    int block = -1;
    if (count < 2 || number_of(pmix, PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE) != count) return OK;
    TRY(block_give(pmix, count, &block));
    if (pmix->own.rank > 0) TRY(block_take(pmix, &block));
    TRY(pmix_status(pmix, pmix->call.PMIx_Fence(NULL, 0, NULL, 0), "meeting the other ranks"));
    return shared_open(block, (int)pmix->own.rank, timeout > 0 ? timeout : TIMEOUT_SECONDS, comm);
}

/* Once the ranks share memory, PMIx is no longer needed. */
enum status pmix_ranks_open(double timeout, struct comm **comm)
{
    struct pmix pmix;
    struct reason why;
    *comm = NULL;
    if (!getenv("PMIX_NAMESPACE") || !library_open("libpmix.so.2", names, &pmix.call, &why)) return OK;
    if (pmix.call.PMIx_Init(&pmix.own, NULL, 0) != PMIX_SUCCESS) return OK;
    enum status status = pmix_join(&pmix, timeout, comm);
    if (status == OK) pmix.call.PMIx_Finalize(NULL, 0);
    return status;
}

#else

enum status pmix_ranks_open(double timeout, struct comm **comm)
{
    *comm = NULL;
    return OK;
}

#endif
