#include "comm/nccl_exchange.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/library.h"
#include "base/memory.h"
#include "base/text.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

/* Thread blocks that an exchange has at most, and takes from the backward pass beside it. NCCL_MAX_CTAS in
 * the environment wins over it. */
#define BLOCKS_MAX 8
#define BLOCKS_OF_STAGES 32      /* a stage often has nothing to compute until its message is there */

/* On 2 and 4 H200s, with 1 and 8 blocks: code, and buffers of each block for all-reduce and all-gather; then
 * for each rank that parts are sent to. On 2, a second communicator. */
int64_t nccl_exchange_bytes(int ranks, struct nccl_use use)
{
    int64_t mebibytes = 382 + 18 * BLOCKS_MAX;
    if (use.parts) mebibytes += 62 + 12 * BLOCKS_MAX * (ranks - 1);
    return ranks > 1 ? mebibytes << 20 : 0;
}

/* Two communicators on 2 H200s, which have exchanged messages and gathered squares. */
int64_t nccl_stages_bytes(void)
{
    return INT64_C(1403) << 20;
}

#ifdef HAVE_NCCL
#include <nccl.h>

#define FUNCTIONS(X)                                                                                   \
    X(ncclGetUniqueId) X(ncclCommInitRankConfig) X(ncclGetErrorString) X(ncclGetLastError)             \
    X(ncclAllReduce) X(ncclAllGather) X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)        \
    X(ncclCommAbort)

struct functions {
    FUNCTIONS(LIBRARY_MEMBER)
};
static const char *const names[] = {FUNCTIONS(LIBRARY_NAME) NULL};

struct nccl {
    ncclComm_t comm;
    ncclComm_t back;         /* of messages to lower ranks; NULL: the same */
    struct functions call;
    pthread_mutex_t lock;    /* of `aborted`; held while an exchange, or a group of them, is queued */
    bool grouped;
    bool aborted;            /* the communicators are not to be used any more */
};

static struct nccl *nccl_of(const struct comm *comm)
{
    return comm->exchange_state;
}

static enum status nccl_status(const struct nccl *nccl, ncclResult_t result, const char *trying)
{
    if (result == ncclSuccess) return OK;
    const char *more = nccl->call.ncclGetLastError(NULL);
    return fail(NO_DEVICE, "NCCL: %s failed: %s%s%s", trying, nccl->call.ncclGetErrorString(result),
                more && *more ? ": " : "", more ? more : "");
}

/* Between begin and finish the communicators are not aborted. */
static enum status nccl_begin(struct comm *comm)
{
    struct nccl *nccl = nccl_of(comm);
    if (nccl->grouped) return OK;
    pthread_mutex_lock(&nccl->lock);
    if (!nccl->aborted) return OK;
    pthread_mutex_unlock(&nccl->lock);
    return comm_alive(comm);
}

static enum status nccl_finish(struct comm *comm, ncclResult_t result, const char *trying)
{
    struct nccl *nccl = nccl_of(comm);
    if (!nccl->grouped) pthread_mutex_unlock(&nccl->lock);
    return nccl_status(nccl, result, trying);
}

static enum status nccl_all_gather(struct comm *comm, const void *from, void *to, size_t bytes, void *stream)
{
    const struct nccl *nccl = nccl_of(comm);
    TRY(nccl_begin(comm));
    return nccl_finish(comm, nccl->call.ncclAllGather(from, to, bytes, ncclInt8, nccl->comm, stream),
                       "an all-gather");
}

static enum status nccl_all_reduce(struct comm *comm, const struct comm_numbers *from, void *to, void *stream)
{
    static const ncclDataType_t types[] = {[F32] = ncclFloat32, [F16] = ncclFloat16, [BF16] = ncclBfloat16};
    const struct nccl *nccl = nccl_of(comm);
    TRY(nccl_begin(comm));
    return nccl_finish(comm, nccl->call.ncclAllReduce(from->data, to, from->count, types[from->dtype],
                                                      ncclSum, nccl->comm, stream), "an all-reduce");
}

/* The operations of a communicator run one after another, whatever their streams. */
static ncclComm_t comm_to(const struct nccl *nccl, int from, int to)
{
    return nccl->back && to < from ? nccl->back : nccl->comm;
}

static enum status nccl_send(struct comm *comm, int peer, const void *from, size_t bytes, void *stream)
{
    const struct nccl *nccl = nccl_of(comm);
    TRY(nccl_begin(comm));
    return nccl_finish(comm, nccl->call.ncclSend(from, bytes, ncclInt8, peer, comm_to(nccl, comm->rank, peer),
                                                 stream), "a send");
}

static enum status nccl_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream)
{
    const struct nccl *nccl = nccl_of(comm);
    TRY(nccl_begin(comm));
    return nccl_finish(comm, nccl->call.ncclRecv(to, bytes, ncclInt8, peer, comm_to(nccl, peer, comm->rank),
                                                 stream), "a receive");
}

static enum status nccl_group_begin(struct comm *comm)
{
    struct nccl *nccl = nccl_of(comm);
    TRY(nccl_begin(comm));
    ncclResult_t result = nccl->call.ncclGroupStart();
    nccl->grouped = result == ncclSuccess;
    return nccl->grouped ? OK : nccl_finish(comm, result, "a group of exchanges");
}

static enum status nccl_group_end(struct comm *comm)
{
    struct nccl *nccl = nccl_of(comm);
    ncclResult_t result = nccl->call.ncclGroupEnd();
    nccl->grouped = false;
    return nccl_finish(comm, result, "a group of exchanges");
}

static enum status nccl_all_to_all(struct comm *comm, const void *from, void *to, size_t bytes, void *stream)
{
    enum status status = OK;
    TRY(nccl_group_begin(comm));
    for (int peer = 0; status == OK && peer < comm->count; peer++) {
        if (peer == comm->rank) continue;
        size_t at = (size_t)peer * bytes;
        status = nccl_send(comm, peer, (const char *)from + at, bytes, stream);
        if (status == OK) status = nccl_receive(comm, peer, (char *)to + at, bytes, stream);
    }
    enum status ended = nccl_group_end(comm);
    return status == OK ? ended : status;
}

static const struct exchange_backend nccl_backend = {
    .name = "NCCL",
    .all_to_all = nccl_all_to_all,
    .all_gather = nccl_all_gather,
    .all_reduce = nccl_all_reduce,
    .send = nccl_send,
    .receive = nccl_receive,
    .group_begin = nccl_group_begin,
    .group_end = nccl_group_end,
};

/* Turns off multicast: with it, bits depend on what else runs on the host, and registered buffers of graphs
 * can hang. */
static void set_environment(void)
{
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

/* The first rank makes the id by which they find each other; all learn whether it could. */
static enum status share_id(struct comm *comm, const struct nccl *nccl, ncclUniqueId *id)
{
    struct {
        ncclResult_t result;
        ncclUniqueId id;
    } message = {.result = ncclSuccess};
    if (comm->rank == 0) message.result = nccl->call.ncclGetUniqueId(&message.id);
    TRY(comm_broadcast(comm, 0, &message, sizeof message));
    *id = message.id;
    return nccl_status(nccl, message.result, "making an id for the ranks");
}

static enum status join(struct comm *comm, const struct nccl *nccl, int blocks, ncclComm_t *joined)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = blocks;
    TRY(share_id(comm, nccl, &id));
    return nccl_status(nccl, nccl->call.ncclCommInitRankConfig(joined, comm->count, id, comm->rank, &config),
                       "joining the other ranks");
}

/* A communicator's abort ends its kernels at once, but does not return before graphs that contain them are
 * destroyed; whoever waits for these does that when both communicators' kernels have ended: each has a watch
 * of its own. */
static void nccl_lost(void *context, ncclComm_t lost)
{
    struct nccl *nccl = context;
    pthread_mutex_lock(&nccl->lock);
    nccl->aborted = true;
    pthread_mutex_unlock(&nccl->lock);
    nccl->call.ncclCommAbort(lost);
}

static void nccl_comm_lost(void *context) { nccl_lost(context, ((struct nccl *)context)->comm); }
static void nccl_back_lost(void *context) { nccl_lost(context, ((struct nccl *)context)->back); }

enum status nccl_exchange_open(struct comm *comm, struct nccl_use use)
{
    struct reason reason;
    set_environment();
    struct functions functions;
    if (!library_open("libnccl.so.2", names, &functions, &reason))
        return fail(NO_DEVICE, "several GPUs need NCCL: %s", reason.text);
    struct nccl *nccl = memory_new(1, sizeof *nccl);
    *nccl = (struct nccl){.call = functions, .lock = PTHREAD_MUTEX_INITIALIZER};
    int blocks = use.both_ways ? BLOCKS_OF_STAGES : BLOCKS_MAX;
    enum status status = join(comm, nccl, blocks, &nccl->comm);
    if (status == OK && use.both_ways) status = join(comm, nccl, blocks, &nccl->back);
    if (status != OK) {
        free(nccl);
        return status;
    }
    comm->exchange = &nccl_backend;
    comm->exchange_state = nccl;
    status = comm_watch(comm, nccl_comm_lost, nccl);
    if (status == OK && nccl->back) status = comm_watch(comm, nccl_back_lost, nccl);
    return status;
}

#else

enum status nccl_exchange_open(struct comm *comm, struct nccl_use use)
{
    return fail(USAGE, "several GPUs need NCCL, and this build has none (Debian's package is libnccl-dev)");
}

#endif
