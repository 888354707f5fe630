#include "comm/cuda_mail.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "base/align.h"

#define ALIGNMENT 256

static size_t flag_bytes(const struct comm_mail *size)
{
    return align_up((size_t)size->messages * sizeof(uint32_t), ALIGNMENT);
}

static size_t box_bytes(const struct comm_mail *size)
{
    return flag_bytes(size) + size->bytes;
}

/* Where messages from `from` lie in the memory of a rank that gets so much from each. */
static size_t box_offset(const struct comm_mail *sizes, int from)
{
    size_t offset = 0;
    for (int r = 0; r < from; r++) offset += box_bytes(&sizes[r]);
    return offset;
}

/* Behind all messages lies a 1, which is copied to flags. */
size_t cuda_mail_bytes(const struct comm_mail *from, int count)
{
    return box_offset(from, count) + ALIGNMENT;
}

#ifdef HAVE_NCCL
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Messages from one rank to another: their flags, then their bytes. */
struct box {
    char *memory;            /* device memory of the receiver */
    struct comm_mail size;
    int messages;            /* of the step so far */
    size_t bytes;
};

struct mail {
    char *memory;            /* this rank's; NULL: none yet */
    char **mapped;           /* by rank: what cudaIpcOpenMemHandle gave */
    struct box *in, *out;    /* by rank */
    uint32_t *one;           /* device memory that holds 1 */
    CUresult(CUDAAPI *wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    CUresult(CUDAAPI *write)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
};

/* A rank's announcement to the others. */
struct address {
    cudaIpcMemHandle_t handle;
    bool is_there;
};

static bool find(const char *name, void *function)
{
    enum cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, function, 12000, cudaEnableDefault, &result);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, function, cudaEnableDefault, &result);
#endif
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess;
}

static struct mail *mail_of(const struct comm *comm)
{
    return comm->exchange_state;
}

/* Whether it is true on all ranks. */
static enum status agree(struct comm *comm, bool *is)
{
    bool all = true;
    for (int r = 0; r < comm->count; r++) {
        bool its = *is;
        TRY(comm_broadcast(comm, r, &its, sizeof its));
        all = all && its;
    }
    *is = all;
    return OK;
}

/* Memory is given back when nobody reaches it any more. */
static enum status mail_empty(struct comm *comm, struct mail *mail)
{
    bool closed = true;
    for (int r = 0; r < comm->count; r++) {
        if (mail->mapped[r]) cudaIpcCloseMemHandle(mail->mapped[r]);
        mail->mapped[r] = NULL;
    }
    TRY(agree(comm, &closed));
    if (mail->memory) cudaFree(mail->memory);
    mail->memory = NULL;
    return OK;
}

static void mail_free(struct mail *mail)
{
    free(mail->mapped);
    free(mail->in);
    free(mail->out);
    free(mail);
}

/* Flags of 0, and what others need to reach them. */
static bool take_memory(const struct comm *comm, struct mail *mail, const struct comm_mail *from,
                        struct address *address)
{
    const uint32_t one = 1;
    size_t bytes = box_offset(from, comm->count);
    void *memory;
    if (cudaMalloc(&memory, cuda_mail_bytes(from, comm->count)) != cudaSuccess) return false;
    mail->memory = memory;
    mail->one = (uint32_t *)(mail->memory + bytes);
    return cudaMemset(memory, 0, bytes) == cudaSuccess &&
           cudaMemcpy(mail->one, &one, sizeof one, cudaMemcpyHostToDevice) == cudaSuccess &&
           cudaIpcGetMemHandle(&address->handle, memory) == cudaSuccess &&
           cudaDeviceSynchronize() == cudaSuccess;
}

/* All learn what rank r gets from each, and where. False: this rank does not reach it. */
static enum status meet(struct comm *comm, struct mail *mail, int r, struct comm_mail *sizes,
                        struct address *address, bool *reached)
{
    void *memory;
    TRY(comm_broadcast(comm, r, sizes, (size_t)comm->count * sizeof *sizes));
    TRY(comm_broadcast(comm, r, address, sizeof *address));
    if (r == comm->rank || sizes[comm->rank].messages == 0) return OK;
    *reached = *reached && address->is_there &&
               cudaIpcOpenMemHandle(&memory, address->handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
    if (!*reached) return OK;
    mail->mapped[r] = memory;
    mail->out[r] = (struct box){.memory = mail->mapped[r] + box_offset(sizes, comm->rank),
                                .size = sizes[comm->rank]};
    return OK;
}

static enum status connect(struct comm *comm, struct mail *mail, const struct comm_mail *from, bool *reached)
{
    struct address own = {0};
    size_t bytes = (size_t)comm->count * sizeof *from;
    struct comm_mail *sizes = memory_new((size_t)comm->count, sizeof *sizes);
    enum status status = OK;
    own.is_there = take_memory(comm, mail, from, &own);
    *reached = *reached && own.is_there;
    for (int r = 0; status == OK && r < comm->count; r++) {
        struct address address = own;
        memcpy(sizes, from, bytes);
        status = meet(comm, mail, r, sizes, &address, reached);
        mail->in[r] = (struct box){.memory = mail->memory + box_offset(from, r), .size = from[r]};
    }
    cudaGetLastError();
    free(sizes);
    return status == OK ? agree(comm, reached) : status;
}

static enum status mail_expect(struct comm *comm, const struct comm_mail *from)
{
    bool reached = true;
    TRY(mail_empty(comm, mail_of(comm)));
    TRY(connect(comm, mail_of(comm), from, &reached));
    if (reached) return OK;
    return fail(NO_DEVICE, "no device memory for what stages send each other: %zu bytes",
                box_offset(from, comm->count));
}

static void mail_begin(struct comm *comm)
{
    struct mail *mail = mail_of(comm);
    for (int r = 0; r < comm->count; r++) {
        mail->in[r].messages = mail->out[r].messages = 0;
        mail->in[r].bytes = mail->out[r].bytes = 0;
    }
}

/* The place of the next message, and its flag; NULL: it was not expected. */
static char *box_next(struct box *box, size_t bytes, uint32_t **flag)
{
    char *place = box->memory + flag_bytes(&box->size) + box->bytes;
    *flag = (uint32_t *)box->memory + box->messages;
    box->messages++;
    box->bytes += comm_mail_room(bytes);
    return box->messages <= box->size.messages && box->bytes <= box->size.bytes ? place : NULL;
}

static enum status mail_status(bool done, const char *trying)
{
    if (done) return OK;
    return fail(NO_DEVICE, "%s between GPUs failed: %s", trying, cudaGetErrorString(cudaGetLastError()));
}

static enum status mail_send(struct comm *comm, int peer, const void *from, size_t bytes, void *stream)
{
    const struct mail *mail = mail_of(comm);
    uint32_t *flag;
    char *to = box_next(&mail->out[peer], bytes, &flag);
    bool done =
        to && cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream) == cudaSuccess &&
        cudaMemcpyAsync(flag, mail->one, sizeof *flag, cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
    return mail_status(done, "a send");
}

static enum status mail_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream)
{
    const struct mail *mail = mail_of(comm);
    uint32_t *flag;
    char *from = box_next(&mail->in[peer], bytes, &flag);
    bool done = from && mail->wait(stream, (CUdeviceptr)flag, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS &&
                mail->write(stream, (CUdeviceptr)flag, 0, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS;
    if (done && to != from)
        done = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
    return mail_status(done, "a receive");
}

static void *mail_place(struct comm *comm, int peer)
{
    const struct box *box = &mail_of(comm)->in[peer];
    return box->memory + flag_bytes(&box->size);
}

static enum status mail_all_gather(struct comm *comm, const void *from, void *to, size_t bytes, void *stream)
{
    char *own = (char *)to + (size_t)comm->rank * bytes;
    for (int r = 0; r < comm->count; r++)
        if (r != comm->rank) TRY(mail_send(comm, r, from, bytes, stream));
    for (int r = 0; r < comm->count; r++)
        if (r != comm->rank) TRY(mail_receive(comm, r, (char *)to + (size_t)r * bytes, bytes, stream));
    return mail_status(cudaMemcpyAsync(own, from, bytes, cudaMemcpyDeviceToDevice, stream) == cudaSuccess,
                       "an all-gather");
}

static const struct exchange_backend cuda_mail = {
    .name = "copy engines",
    .all_gather = mail_all_gather,
    .send = mail_send,
    .receive = mail_receive,
    .expect = mail_expect,
    .begin = mail_begin,
    .place = mail_place,
};

enum status cuda_mail_open(struct comm *comm, bool *opened)
{
    size_t count = (size_t)comm->count;
    struct mail *mail = memory_new(1, sizeof *mail);
    struct comm_mail *trial = memory_new(count, sizeof *trial);
    mail->mapped = memory_new(count, sizeof *mail->mapped);
    mail->in = memory_new(count, sizeof *mail->in);
    mail->out = memory_new(count, sizeof *mail->out);
    for (size_t r = 0; r < count; r++) trial[r] = (struct comm_mail){1, comm_mail_room(1)};
    *opened = find("cuStreamWaitValue32", &mail->wait) && find("cuStreamWriteValue32", &mail->write);
    enum status status = connect(comm, mail, trial, opened);
    free(trial);
    if (status == OK && *opened) {
        comm->exchange = &cuda_mail;
        comm->exchange_state = mail;
        return OK;
    }
    if (status == OK) status = mail_empty(comm, mail);
    mail_free(mail);
    return status;
}

#else

enum status cuda_mail_open(struct comm *comm, bool *opened)
{
    *opened = false;
    return OK;
}

#endif
