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
    char *shared;            /* memory that all ranks write to: this rank's; NULL: none */
    char **others;           /* by rank: likewise, mapped */
    struct comm before;      /* with the backend that makes the other exchanges */
    struct box *in, *out;    /* by rank */
    uint32_t *one;           /* device memory that holds 1 */
    CUresult(CUDAAPI *wait)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    CUresult(CUDAAPI *write)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    CUresult(CUDAAPI *error_text)(CUresult, const char **);
};

/* A rank's announcement to the others. */
struct address {
    cudaIpcMemHandle_t handle, shared;
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

/* Sets *is to false unless it is true on all ranks. */
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

static void unmap(struct comm *comm, char **mapped)
{
    for (int r = 0; r < comm->count; r++) {
        if (mapped[r]) cudaIpcCloseMemHandle(mapped[r]);
        mapped[r] = NULL;
    }
}

/* Memory is given back when nobody reaches it any more. */
static enum status mail_empty(struct comm *comm, struct mail *mail)
{
    bool closed = true;
    unmap(comm, mail->mapped);
    TRY(agree(comm, &closed));
    if (mail->memory) cudaFree(mail->memory);
    mail->memory = NULL;
    return OK;
}

static void mail_free(struct mail *mail)
{
    free(mail->mapped);
    free(mail->others);
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
           (!mail->shared || cudaIpcGetMemHandle(&address->shared, mail->shared) == cudaSuccess) &&
           cudaDeviceSynchronize() == cudaSuccess;
}

static bool map(cudaIpcMemHandle_t handle, char **mapped)
{
    void *memory;
    if (cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) return false;
    *mapped = memory;
    return true;
}

/* All learn what rank r gets from each, and where. False: this rank does not reach it. */
static enum status meet(struct comm *comm, struct mail *mail, int r, struct comm_mail *sizes,
                        struct address *address, bool *reached)
{
    TRY(comm_broadcast(comm, r, sizes, (size_t)comm->count * sizeof *sizes));
    TRY(comm_broadcast(comm, r, address, sizeof *address));
    if (r == comm->rank || sizes[comm->rank].messages == 0) return OK;
    *reached = *reached && address->is_there && map(address->handle, &mail->mapped[r]) &&
               (!mail->shared || map(address->shared, &mail->others[r]));
    if (!*reached) return OK;
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
    return fail(NO_DEVICE, "no device memory for what GPUs send each other: %zu bytes",
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

/* The place of the next message; NULL: it was not expected. */
static char *box_place(struct box *box, size_t bytes)
{
    char *place = box->memory + flag_bytes(&box->size) + box->bytes;
    box->bytes += comm_mail_room(bytes);
    return box->bytes <= box->size.bytes ? place : NULL;
}

/* The next flag, likewise. */
static uint32_t *box_flag(struct box *box)
{
    return box->messages < box->size.messages ? (uint32_t *)box->memory + box->messages++ : NULL;
}

static enum status mail_fail(const char *trying, const char *why)
{
    return fail(NO_DEVICE, "%s between GPUs failed: %s", trying, why);
}

static enum status copy(void *to, const void *from, size_t bytes, void *stream, const char *trying)
{
    if (to == from) return OK;
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    if (error == cudaSuccess) return OK;
    cudaGetLastError();      /* so that no later call seems to have failed */
    return mail_fail(trying, cudaGetErrorString(error));
}

static enum status driver_status(const struct mail *mail, CUresult result, const char *trying)
{
    const char *words = NULL;
    if (result == CUDA_SUCCESS) return OK;
    mail->error_text(result, &words);
    return mail_fail(trying, words ? words : "an unknown error of the driver");
}

/* There is a place, or a flag, for what all ranks were told to expect. */
static enum status expected(const void *place, const char *trying)
{
    return place ? OK : mail_fail(trying, "it was not announced to the receiver");
}

/* Sets the next flag of a rank when the stream's work so far is done. */
static enum status tell(const struct mail *mail, int peer, void *stream, const char *trying)
{
    uint32_t *flag = box_flag(&mail->out[peer]);
    TRY(expected(flag, trying));
    return copy(flag, mail->one, sizeof *flag, stream, trying);
}

/* The stream waits until a rank has set the next flag. */
static enum status hear(const struct mail *mail, int peer, void *stream, const char *trying)
{
    uint32_t *flag = box_flag(&mail->in[peer]);
    TRY(expected(flag, trying));
    TRY(driver_status(mail, mail->wait(stream, (CUdeviceptr)flag, 1, CU_STREAM_WAIT_VALUE_EQ), trying));
    return driver_status(mail, mail->write(stream, (CUdeviceptr)flag, 0, CU_STREAM_WRITE_VALUE_DEFAULT),
                         trying);
}

static enum status mail_send(struct comm *comm, int peer, const void *from, size_t bytes, void *stream)
{
    const struct mail *mail = mail_of(comm);
    char *to = box_place(&mail->out[peer], bytes);
    TRY(expected(to, "a send"));
    TRY(copy(to, from, bytes, stream, "a send"));
    return tell(mail, peer, stream, "a send");
}

static enum status mail_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream)
{
    const struct mail *mail = mail_of(comm);
    char *from = box_place(&mail->in[peer], bytes);
    TRY(expected(from, "a receive"));
    TRY(hear(mail, peer, stream, "a receive"));
    return copy(to, from, bytes, stream, "a receive");
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
    return copy(own, from, bytes, stream, "an all-gather");
}

/* Part r of `from`, or the same with step 0, is copied to r's `to` when r lets it be written. Each begins
 * with the rank behind it, so that no two write to the same one. */
static enum status swap(struct comm *comm, const char *from, size_t step, const char *to, size_t bytes,
                        void *stream)
{
    const struct mail *mail = mail_of(comm);
    size_t at = (size_t)(to - mail->shared) + (size_t)comm->rank * bytes;
    for (int k = 1; k < comm->count; k++)
        TRY(tell(mail, (comm->rank + k) % comm->count, stream, "an exchange"));
    for (int k = 1; k < comm->count; k++) {
        int peer = (comm->rank + k) % comm->count;
        TRY(hear(mail, peer, stream, "an exchange"));
        TRY(copy(mail->others[peer] + at, from + (size_t)peer * step, bytes, stream, "an exchange"));
        TRY(tell(mail, peer, stream, "an exchange"));
    }
    for (int k = 1; k < comm->count; k++)
        TRY(hear(mail, (comm->rank + k) % comm->count, stream, "an exchange"));
    return OK;
}

static enum status shares_all_to_all(struct comm *comm, const void *from, void *to, size_t bytes,
                                     void *stream)
{
    return swap(comm, from, bytes, to, bytes, stream);
}

/* A kernel exchanges few bytes in less time than it takes to set flags. */
static enum status shares_all_gather(struct comm *comm, const void *from, void *to, size_t bytes,
                                     void *stream)
{
    struct mail *mail = mail_of(comm);
    if (bytes * (size_t)comm->count < EXCHANGE_BESIDE_BYTES)
        return mail->before.exchange->all_gather(&mail->before, from, to, bytes, stream);
    TRY(copy((char *)to + (size_t)comm->rank * bytes, from, bytes, stream, "an all-gather"));
    return swap(comm, from, 0, to, bytes, stream);
}

static enum status shares_all_reduce(struct comm *comm, const struct comm_numbers *from, void *to,
                                     void *stream)
{
    struct mail *mail = mail_of(comm);
    return mail->before.exchange->all_reduce(&mail->before, from, to, stream);
}

/* An exchange sets two flags of each rank. */
static enum status shares_share(struct comm *comm, void *memory, int exchanges)
{
    struct mail *mail = mail_of(comm);
    struct comm_mail *from = memory_new((size_t)comm->count, sizeof *from);
    enum status status = OK;
    unmap(comm, mail->others);
    mail->shared = memory;
    for (int r = 0; r < comm->count; r++) from[r].messages = 2 * exchanges;
    if (memory) status = mail_expect(comm, from);
    free(from);
    return status;
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

static const struct exchange_backend cuda_shares = {
    .name = "copy engines, and NCCL",
    .all_to_all = shares_all_to_all,
    .all_gather = shares_all_gather,
    .all_reduce = shares_all_reduce,
    .begin = mail_begin,
    .share = shares_share,
    .beside_bytes = EXCHANGE_BESIDE_BYTES,
};

static enum status mail_open(struct comm *comm, const struct exchange_backend *exchange, bool *opened)
{
    size_t count = (size_t)comm->count;
    struct mail *mail = memory_new(1, sizeof *mail);
    struct comm_mail *trial = memory_new(count, sizeof *trial);
    mail->before = *comm;
    mail->mapped = memory_new(count, sizeof *mail->mapped);
    mail->others = memory_new(count, sizeof *mail->others);
    mail->in = memory_new(count, sizeof *mail->in);
    mail->out = memory_new(count, sizeof *mail->out);
    for (size_t r = 0; r < count; r++) trial[r] = (struct comm_mail){1, comm_mail_room(1)};
    *opened = find("cuStreamWaitValue32", &mail->wait) && find("cuStreamWriteValue32", &mail->write) &&
              find("cuGetErrorString", &mail->error_text);
    enum status status = connect(comm, mail, trial, opened);
    free(trial);
    if (status == OK && *opened) {
        comm->exchange = exchange;
        comm->exchange_state = mail;
        return OK;
    }
    if (status == OK) status = mail_empty(comm, mail);
    mail_free(mail);
    return status;
}

enum status cuda_mail_open(struct comm *comm, bool *opened)
{
    return mail_open(comm, &cuda_mail, opened);
}

enum status cuda_shares_open(struct comm *comm)
{
    bool opened;
    return mail_open(comm, &cuda_shares, &opened);
}

#else

enum status cuda_mail_open(struct comm *comm, bool *opened)
{
    *opened = false;
    return OK;
}

enum status cuda_shares_open(struct comm *comm)
{
    return OK;
}

#endif
