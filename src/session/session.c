#include "session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "comm/cuda_mail.h"
#include "comm/group.h"
#include "comm/nccl_exchange.h"
#include "input/gpu_preprocessing.h"

void session_close(struct session *session)
{
    gpu_preprocessing_close(session->gpu_preprocessing);
    decoding_close(session->decoding);
    teacher_close(&session->teacher);
    features_close(&session->features);
    device_allocators_host_close(session->device, session->pinned);
    device_allocators_close(session->device, session->cache);
    device_close(session->device);
    graphs_close(&session->graphs);
    data_close(&session->data);
    group_close(session->stages);
    if (session->replicas != session->comm) group_close(session->replicas);
    free(session->gpu);
    *session = (struct session){0};
}

void session_join(struct session *session)
{
    const struct hyperparameters *hyper = &session->hyper;
    struct comm *comm = session->replicas = session->comm;
    if (!comm || hyper->stages == 1) return;
    int stage = session->stage = comm->rank % hyper->stages;
    session->replicas = group_open(comm, &(struct group_ranks){stage, hyper->stages, hyper->replicas});
    session->stages = group_open(comm, &(struct group_ranks){comm->rank - stage, 1, hyper->stages});
}

int session_replica(const struct session *session)
{
    return comm_rank(session->comm) / session->hyper.stages;
}

bool session_has_losses(const struct session *session)
{
    return session->stage == session->hyper.stages - 1;
}

bool session_requests_cuda(const struct session *session)
{
    return strncmp(session->settings->run.device, "cuda", 4) == 0;
}

/* True if run.device resolves to CUDA on this machine with this build. */
static bool means_cuda(const struct session *session)
{
    struct reason reason;
    if (!kernel_plans_code(DEVICE_CUDA)(op_find("conv"))) return false;
    if (strcmp(session->settings->run.device, "auto") != 0) return session_requests_cuda(session);
    for (const struct device_backend *const *backend = device_backends; *backend; backend++)
        if ((*backend)->kind == DEVICE_CUDA && (*backend)->count(&reason) > 0) return true;
    return false;
}

/* Ranks of a host share its processors. */
static int threads_of(const struct session *session)
{
    int threads = (int)session->settings->run.threads;
    if (threads > 0 || !session->comm) return threads;
    threads = host_processors() / session->comm->local_count;
    return threads > 0 ? threads : 1;
}

/* Sends one message from each stage, all in the same direction; the first bytes of `memory` are sent. */
static enum status greet(struct comm *comm, bool up, char *memory, void *stream)
{
    const struct exchange_backend *exchange = comm->exchange;
    enum status status = exchange->group_begin(comm);
    for (int peer = 0; status == OK && peer < comm->count; peer++) {
        if (peer == comm->rank) continue;
        status = (peer > comm->rank) == up ? exchange->send(comm, peer, memory, 1, stream)
                                           : exchange->receive(comm, peer, memory + 1 + peer, 1, stream);
    }
    enum status ended = exchange->group_end(comm);
    return status == OK ? ended : status;
}

/* Ranks connect at their first exchange, which blocks the host: here all do so at the same time. */
static enum status connect_stages(const struct session *session)
{
    struct device *device = session->device;
    size_t bytes = (size_t)session->stages->count + 1;
    void *stream = device->backend->stream(device, 0);
    char *memory = device->backend->memory.allocate(device, bytes);
    if (!memory) return fail(NO_DEVICE, "not enough device memory for messages between stages");
    enum status status = greet(session->stages, true, memory, stream);
    if (status == OK) status = greet(session->stages, false, memory, stream);
    if (status == OK) status = device->backend->synchronize(device);
    device->backend->memory.free(device, memory, bytes);
    return status;
}

static enum status open_exchanges(const struct session *session)
{
    bool opened = false, one_host = session->comm->local_count == session->comm->count;
    if (comm_count(session->replicas) > 1) {
        TRY(nccl_exchange_open(session->replicas, (struct nccl_use){0}));
        if (one_host) TRY(cuda_shares_open(session->replicas));
    }
    if (!session->stages) return OK;
    if (one_host) TRY(cuda_mail_open(session->stages, &opened));
    if (opened) return OK;
    TRY(nccl_exchange_open(session->stages, (struct nccl_use){.both_ways = true}));
    return connect_stages(session);
}

/* Each rank of a host has the GPU of its number there. */
static enum status open_device(struct session *session)
{
    char name[24];
    const char *device = session->settings->run.device;
    bool own = session->comm && means_cuda(session);
    if (own) {
        snprintf(name, sizeof name, "cuda:%d", session->comm->local_rank);
        device = name;
    }
    TRY(device_open(device, threads_of(session), &session->device));
    return own ? open_exchanges(session) : OK;
}

enum status session_open_device(struct session *session)
{
    const struct settings *settings = session->settings;
    if (session->device) return OK;
    TRY(open_device(session));
    session->device->memory_limit = (size_t)settings->memory.limit;
    session->cache = device_allocators_open(session->device, 0, comm_count(session->comm) > 1);
    session->pinned = device_allocators_host_open(session->device);
    return teacher_load(&session->teacher, session->device, session->hyper.precision->storage);
}

enum device_kind session_device_kind(const struct session *session)
{
    if (session->device) return session->device->backend->kind;
    return means_cuda(session) ? DEVICE_CUDA : DEVICE_CPU;
}

const char *session_conv_algorithm(const struct session *session)
{
    const char *name = session->settings->run.conv_algorithm;
    return strcmp(name, "auto") == 0 ? NULL : name;
}

int session_streams(const struct session *session)
{
    if (session->device) return session->device->streams;
    return session_device_kind(session) == DEVICE_CUDA ? CUDA_COMPUTING_STREAMS : 1;
}

int64_t session_limit(const struct session *session)
{
    int64_t limit = session->settings->memory.limit;
    return limit == 0 || (session->left > 0 && session->left < limit) ? session->left : limit;
}

double session_joules(const struct session *session)
{
    const struct device_backend *backend = session->device->backend;
    bool counted = backend->kind == DEVICE_CPU && session->comm && session->comm->local_rank > 0;
    return counted ? 0 : backend->joules(session->device);
}

#define PREFETCH_AHEAD 4

/* If the host runs ahead of the device, two batches are in use, and a third should be in preparation. */
int session_prefetch(const struct session *session)
{
    int prefetch = (int)session->settings->loader.prefetch;
    bool ahead = session_device_kind(session) == DEVICE_CUDA;
    return ahead && prefetch < PREFETCH_AHEAD ? PREFETCH_AHEAD : prefetch;
}

struct caching_options session_caching_options(const struct session *session)
{
    return (struct caching_options){
        .cache = session->settings->loader.cache,
        .cache_limit = session->settings->loader.cache_limit,
        .memory_limit = session->settings->memory.limit,
        .kind = session_device_kind(session),
        .data = &session->data,
        .comm = session->comm,
    };
}

struct decoding_options session_decoding_options(const struct session *session)
{
    return (struct decoding_options){
        .decode = session->settings->loader.decode,
        .cache = session->settings->loader.cache,
        .cache_limit = session->settings->loader.cache_limit,
        .memory_limit = session_limit(session),
        .deterministic = session->settings->run.deterministic,
        .kind = session_device_kind(session),
        .device = session->device,
        .data = &session->data,
        .batch = hyperparameters_share(&session->hyper),
        .prefetch = session_prefetch(session),
    };
}

static int64_t kept_bytes(const struct session *session)
{
    if (session->gpu_preprocessing) return gpu_preprocessing_bytes_kept(session->gpu_preprocessing);
    const struct caching_options caching = session_caching_options(session);
    return caching_device_bytes(&caching);
}

static int64_t decoding_bytes_of(const struct session *session)
{
    if (session->device) return decoding_bytes_held(session->decoding);
    const struct decoding_options decoding = session_decoding_options(session);
    return decoding_bytes(&decoding);
}

int64_t session_preprocessing_bytes(const struct session *session)
{
    if (!gpu_preprocessing_can(session_device_kind(session), &session->data)) return 0;
    int images = hyperparameters_share(&session->hyper);
    return gpu_preprocessing_bytes(&session->data, images) + kept_bytes(session) + decoding_bytes_of(session);
}
