#include "op_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "op_case.h"

/* Kernels may count on tensors at multiples of this, and on no more. */
#define ALIGNMENT 256
/* y, d_y, the other operands, loss scale, step, skipped, workspace */
#define SINGLE_TENSORS (6 + CALL_MAX_OPERANDS)
#define SENT_MAX (2 * OP_MAX_INPUTS + 2 * OP_MAX_PARAMS + OP_MAX_SAVED + SINGLE_TENSORS)

/* Host memory and its counterpart on the device. */
struct sent {
    void *host;
    size_t bytes;
    char *allocation;
    bool channels_last;
    struct tensor tensor;
};

struct shipment {
    struct device *device;
    enum status status;      /* the first thing that went wrong */
    int count;
    struct sent sent[SENT_MAX];
};

static void note(struct shipment *shipment, enum status status)
{
    if (shipment->status == OK) shipment->status = status;
}

/* [outer, rows, columns] of elements of `size` bytes becomes [outer, columns, rows]. */
static void transpose(const char *from, char *to, int64_t outer, int64_t rows, int64_t columns, size_t size)
{
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                memcpy(to + (size_t)((o * columns + c) * rows + r) * size,
                       from + (size_t)((o * rows + r) * columns + c) * size, size);
}

static void *on_device(const struct sent *sent)
{
    return sent->allocation + ALIGNMENT;
}

static void upload(struct shipment *shipment, const struct sent *sent)
{
    const struct device_backend *backend = shipment->device->backend;
    const int64_t *dim = sent->tensor.shape.dim;
    if (!sent->channels_last) {
        note(shipment,
             backend->transfers.upload(shipment->device, 0, on_device(sent), sent->host, sent->bytes));
        return;
    }
    char *turned = memory_new(sent->bytes, 1);
    transpose(sent->host, turned, dim[0], dim[1], dim[2] * dim[3], dtype_bytes(sent->tensor.dtype));
    note(shipment, backend->transfers.upload(shipment->device, 0, on_device(sent), turned, sent->bytes));
    note(shipment, backend->synchronize(shipment->device));
    free(turned);
}

static void download(struct shipment *shipment, const struct sent *sent)
{
    const struct device_backend *backend = shipment->device->backend;
    const int64_t *dim = sent->tensor.shape.dim;
    char *held = sent->channels_last ? memory_new(sent->bytes, 1) : sent->host;
    note(shipment, backend->transfers.download(shipment->device, 0, held, on_device(sent), sent->bytes));
    note(shipment, backend->synchronize(shipment->device));
    if (!sent->channels_last) return;
    transpose(held, sent->host, dim[0], dim[2] * dim[3], dim[1], dtype_bytes(sent->tensor.dtype));
    free(held);
}

static void *send(struct shipment *shipment, const struct tensor *tensor, bool channels_last)
{
    if (!tensor->data) return NULL;
    for (int i = 0; i < shipment->count; i++)
        if (shipment->sent[i].host == tensor->data) return on_device(&shipment->sent[i]);
    struct sent *sent = &shipment->sent[shipment->count];
    *sent = (struct sent){.host = tensor->data, .bytes = tensor_bytes(tensor), .tensor = *tensor,
                          .channels_last = channels_last && tensor->shape.rank == 4};
    sent->allocation = shipment->device->backend->memory.allocate(shipment->device, ALIGNMENT + sent->bytes);
    if (!sent->allocation) {
        note(shipment, fail(NO_DEVICE, "no device memory for a tensor"));
        return NULL;
    }
    shipment->count++;
    upload(shipment, sent);
    return on_device(sent);
}

static void send_all(struct shipment *shipment, struct tensor *to, const struct tensor *from, int count,
                     bool channels_last)
{
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        to[i].data = send(shipment, &from[i], channels_last);
    }
}

static void *send_scalar(struct shipment *shipment, const void *host, enum dtype dtype)
{
    struct tensor tensor = {.data = (void *)host, .dtype = dtype, .shape = shape_vector(1)};
    return send(shipment, &tensor, false);
}

/* The tensor that is overwritten comes first: it is at least as large. */
static struct call send_call(struct shipment *shipment, const struct op_code *code, const struct call *call,
                             struct op_case_storage *storage, struct op_random *random)
{
    struct call there = *call;
    bool last = code->channels_last;
    send_all(shipment, &there.d_y, &call->d_y, 1, false);
    for (int i = 0; i < call->operand_count; i++)
        send_all(shipment, &there.operands[i].tensor, &call->operands[i].tensor, 1, false);
    send_all(shipment, there.x = storage->x, call->x, call->x_count, false);
    send_all(shipment, &there.y, &call->y, 1, false);
    send_all(shipment, there.d_x = storage->d_x, call->d_x, call->x_count, false);
    send_all(shipment, there.params = storage->params, call->params, call->param_count, last);
    send_all(shipment, there.d_params = storage->d_params, call->d_params, call->param_count, last);
    send_all(shipment, there.saved = storage->saved, call->saved, call->saved_count, false);
    *random = *call->random;
    random->step = send_scalar(shipment, call->random->step, I64);
    there.random = random;
    there.loss_scale = send_scalar(shipment, call->loss_scale, F32);
    if (call->skipped) there.skipped = send_scalar(shipment, call->skipped, I32);
    there.stream = shipment->device->backend->stream(shipment->device, 0);
    return there;
}

static void forget(struct tensor *to, const struct tensor *from, int count)
{
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        to[i].data = NULL;
    }
}

/* Asked as before memory exists. */
static size_t workspace_bytes(const struct op_code *code, const struct call *call)
{
    struct op_case_storage storage;
    struct call empty = *call;
    forget(empty.x = storage.x, call->x, call->x_count);
    forget(empty.d_x = storage.d_x, call->d_x, call->x_count);
    forget(empty.params = storage.params, call->params, call->param_count);
    forget(empty.d_params = storage.d_params, call->d_params, call->param_count);
    forget(empty.saved = storage.saved, call->saved, call->saved_count);
    forget(&empty.y, &call->y, 1);
    forget(&empty.d_y, &call->d_y, 1);
    for (int i = 0; i < call->operand_count; i++)
        forget(&empty.operands[i].tensor, &call->operands[i].tensor, 1);
    return op_code_workspace(code, &empty);
}

/* A poisoned workspace, whose host side is thrown away. */
static void send_workspace(struct shipment *shipment, struct call *call, size_t bytes)
{
    if (bytes == 0) return;
    struct tensor poison = {.dtype = U8, .shape = shape_vector((int64_t)bytes)};
    poison.data = memory_new(bytes, 1);
    memset(poison.data, 0xff, bytes);
    call->workspace = send(shipment, &poison, false);
    note(shipment, shipment->device->backend->synchronize(shipment->device));
    if (call->workspace) shipment->sent[shipment->count - 1].host = NULL;
    free(poison.data);
}

static void run(struct shipment *shipment, const struct op_code *code, const struct call *call, bool captures)
{
    const struct device_backend *backend = shipment->device->backend;
    struct captured *captured = NULL;
    if (!backend->capture.begin) captures = false;
    if (captures) note(shipment, backend->capture.begin(shipment->device));
    if (shipment->status != OK) return;
    note(shipment, op_case_call_code(code, call));
    if (captures) note(shipment, backend->capture.end(shipment->device, &captured));
    if (captured) note(shipment, backend->capture.launch(shipment->device, captured));
    note(shipment, backend->synchronize(shipment->device));
    if (captures) backend->capture.free(captured);
}

enum status op_device_run(const struct op_code *code, const struct call *call, bool captures)
{
    struct shipment *shipment = memory_new(1, sizeof *shipment);
    struct op_case_storage storage;
    struct op_random random;
    shipment->device = call->device;
    struct call there = send_call(shipment, code, call, &storage, &random);
    send_workspace(shipment, &there, workspace_bytes(code, call));
    if (shipment->status == OK) run(shipment, code, &there, captures);
    for (int i = 0; i < shipment->count; i++) {
        struct sent *sent = &shipment->sent[i];
        if (sent->host) download(shipment, sent);
        call->device->backend->memory.free(call->device, sent->allocation, ALIGNMENT + sent->bytes);
    }
    enum status status = shipment->status;
    free(shipment);
    return status;
}
