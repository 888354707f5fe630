/* fingerprints.c: hashes of tensors, to compare the results of two executions of a step, or the tensors of
 * two ranks. */
#include <stdlib.h>
#include <string.h>

#include "exec/exec_checks.h"
#include "exec/exec_parts.h"
#include "kernels/exchange/fingerprint.h"

static const struct fingerprint *fingerprint_on(enum device_kind kind)
{
    switch (kind) {
    case DEVICE_CPU: return &fingerprint_cpu;
    case DEVICE_CUDA: return ON_CUDA(fingerprint_cuda);
    }
    return NULL;
}

enum status check_tensor(const struct exec *exec, struct execution_check *check,
                         const struct checked_tensor *tensor)
{
    struct device *device = exec->device;
    int index = check->tensors++;
    if (index == check->sought) because(&check->name, "%s: %s", tensor->whose, tensor->what);
    if (!check->fingerprints) return OK;
    void *stream = device->backend->stream(device, tensor->stream);
    return fingerprint_on(device->backend->kind)->compute(device, stream, tensor->data, tensor->bytes,
                                                          &check->fingerprints[index]);
}

static enum status check_param(const struct exec *exec, struct execution_check *check, int p)
{
    const struct store *store = exec->options.store;
    const char *memory = store->memory;
    const struct store_slot *slot = &store->layout.params[p];
    const struct parameter *param = &store->graph->params[p];
    size_t count = (size_t)shape_count(param->spec.shape), bytes = count * dtype_bytes(param->spec.dtype);
    struct checked_tensor master = {memory + slot->master, bytes, 0, param->name, "master"};
    TRY(check_tensor(exec, check, &master));
    for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++)
        if (slot->slots[s] != STORE_NONE)
            TRY(check_tensor(exec, check, &(struct checked_tensor){
                memory + slot->slots[s], count * sizeof(float), 0, param->name,
                exec->options.optimizer->slot_names[s]}));
    struct checked_tensor average = {memory + slot->average, bytes, 0, param->name, "average"};
    if (slot->average != STORE_NONE) TRY(check_tensor(exec, check, &average));
    struct checked_tensor low = {memory + slot->low, count * dtype_bytes(store->layout.low), 0, param->name,
                                 "low-precision copy"};
    return slot->low != STORE_NONE ? check_tensor(exec, check, &low) : OK;
}

/* All that the update writes, of which instructions name only what ops read. */
enum status check_store(const struct exec *exec, struct execution_check *check)
{
    const struct store *store = exec->options.store;
    for (int p = 0; p < store->layout.count; p++) TRY(check_param(exec, check, p));
    struct checked_tensor state = {(const char *)store->memory + store->layout.state,
                                   sizeof(struct optimizer_state), 0, "update", "loss scale and counters"};
    return check_tensor(exec, check, &state);
}

uint64_t exec_fingerprint(const struct exec *exec)
{
    return exec->last->exchange->fingerprint;
}

int exec_store_tensors(const struct exec *exec)
{
    struct execution_check counted = {.sought = -1};
    check_store(exec, &counted);
    return counted.tensors;
}

void exec_store_tensor_name(const struct exec *exec, int index, struct reason *name)
{
    struct execution_check counted = {.sought = index};
    check_store(exec, &counted);
    *name = counted.name;
}

enum status exec_store_fingerprints(const struct exec *exec, uint64_t *fingerprints)
{
    struct device *device = exec->device;
    size_t bytes = (size_t)exec_store_tensors(exec) * sizeof *fingerprints;
    uint64_t *taken = device_host_allocate(device, bytes, "fingerprints", NULL);
    if (!taken) return fail(FAILED, "not enough host memory to compare the parameters of all ranks");
    struct execution_check check = {.fingerprints = memset(taken, 0, bytes), .sought = -1};
    enum status status = check_store(exec, &check);
    enum status done = device->backend->synchronize(device);
    memcpy(fingerprints, taken, bytes);
    device_host_release(device, taken, bytes);
    return status == OK ? done : status;
}
