/* redundant_execution.c: runs a training step twice from the same state and compares all that it wrote: this
 * finds silent data corruption. Fingerprints stand for the first run's tensors, which the second one
 * overwrites. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/exec_parts.h"
#include "kernels/fingerprint.h"

/* A tensor that a step writes. */
struct checked_tensor {
    const void *data;
    size_t bytes;
    int stream;
    const char *whose, *what;
};

/* The fingerprints of one run, whose tensors are the same in the same order each time. */
struct execution_check {
    uint64_t *fingerprints;  /* host memory of the device's kind; NULL: they are only counted */
    int tensors;             /* so far */
    int sought;              /* one whose name is wanted; -1: none */
    struct reason name;
};

static const struct fingerprint *fingerprint_on(enum device_kind kind)
{
    switch (kind) {
    case DEVICE_CPU: return &fingerprint_cpu;
    case DEVICE_CUDA: return ON_CUDA(fingerprint_cuda);
    }
    return NULL;
}

static enum status check_tensor(const struct exec *exec, const struct checked_tensor *tensor)
{
    struct execution_check *check = exec->check;
    struct device *device = exec->device;
    int index = check->tensors++;
    if (index == check->sought) because(&check->name, "%s: %s", tensor->whose, tensor->what);
    if (!check->fingerprints) return OK;
    void *stream = device->backend->stream(device, tensor->stream);
    return fingerprint_on(device->backend->kind)->compute(device, stream, tensor->data, tensor->bytes,
                                                          &check->fingerprints[index]);
}

enum status check_instruction(const struct exec *exec, int i)
{
    const struct instruction *at = &exec->program->instructions[i];
    for (int k = 0; k < at->write_count; k++) {
        const struct value *value = &exec->program->values[at->writes[k]];
        bool output = at->phase == PHASE_FORWARD && at->writes[k] == at->y;
        /* Tensors on the host are checked when they are back. Padding between exchanged gradients is
         * undefined; their results are checked in the store. */
        if (value->kind == KIND_WORKSPACE || value->home == HOME_HOST) continue;
        if (value->kind == KIND_EXCHANGE || value->divided) continue;
        TRY(check_tensor(exec, &(struct checked_tensor){
            .data = exec_address(exec, &exec->slots[0], at->writes[k]),
            .bytes = (size_t)shape_count(value->shape) * dtype_bytes(value->dtype),
            .stream = at->stream, .whose = at->name, .what = output ? "output" : value->name,
        }));
    }
    return OK;
}

/* All that the update writes, of which instructions name only what ops read. */
static enum status check_store(const struct exec *exec)
{
    const struct store *store = exec->options.store;
    const char *memory = store->memory;
    for (int p = 0; p < store->layout.count; p++) {
        const struct store_slot *slot = &store->layout.params[p];
        const struct parameter *param = &store->graph->params[p];
        size_t count = (size_t)shape_count(param->spec.shape), bytes = count * dtype_bytes(param->spec.dtype);
        struct checked_tensor master = {memory + slot->master, bytes, 0, param->name, "master"};
        TRY(check_tensor(exec, &master));
        for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++)
            if (slot->slots[s] != STORE_NONE)
                TRY(check_tensor(exec, &(struct checked_tensor){
                    memory + slot->slots[s], count * sizeof(float), 0, param->name,
                    exec->options.optimizer->slot_names[s]}));
        struct checked_tensor average = {memory + slot->average, bytes, 0, param->name, "average"};
        if (slot->average != STORE_NONE) TRY(check_tensor(exec, &average));
    }
    struct checked_tensor state = {memory + store->layout.state, sizeof(struct optimizer_state), 0, "update",
                                   "loss scale and counters"};
    return check_tensor(exec, &state);
}

/* Counts the tensors, or finds one's name, without running. */
static enum status check_walk(struct exec *exec, int sought, struct execution_check *counted)
{
    *counted = (struct execution_check){.sought = sought};
    exec->check = counted;
    enum status status = OK;
    for (int i = 0; status == OK && i < exec->program->count; i++) status = check_instruction(exec, i);
    if (status == OK) status = check_store(exec);
    exec->check = NULL;
    return status;
}

/* The run is over on the device when this returns, but not collected. */
static enum status start_checked(struct exec *exec, const struct exec_batch *batch,
                                 const struct update_rates *rates, uint64_t *fingerprints)
{
    struct execution_check check = {.fingerprints = fingerprints, .sought = -1};
    exec->check = &check;
    enum status status = exec_start(exec, batch, rates);
    if (status == OK) status = check_store(exec);
    exec->check = NULL;
    TRY(status);
    return exec->device->backend->synchronize(exec->device);
}

static enum status restore_store(struct exec *exec, const void *bytes)
{
    const struct store *store = exec->options.store;
    const struct device_backend *backend = exec->device->backend;
    TRY(backend->transfers.upload(exec->device, 0, store->memory, bytes, (size_t)store->layout.bytes));
    return backend->synchronize(exec->device);
}

/* Undoes the second run. */
static enum status report_difference(struct exec *exec, const void *before, int different)
{
    struct execution_check counted;
    TRY(exec_collect(exec));
    TRY(restore_store(exec, before));
    TRY(check_walk(exec, different, &counted));
    long long step = exec_state(exec)->step;
    return fail(FAILED, "step %lld, run twice from the same state, gave different bits, first in %s: the "
                "memory or processor of this machine is faulty", step, counted.name.text);
}

/* fingerprints: of `count` tensors for each run, 0. */
static enum status start_both_runs(struct exec *exec, const struct exec_batch *batch,
                                   const struct update_rates *rates, void *before, uint64_t *fingerprints,
                                   int count)
{
    const struct store *store = exec->options.store;
    const struct device_backend *backend = exec->device->backend;
    TRY(backend->transfers.download(exec->device, 0, before, store->memory, (size_t)store->layout.bytes));
    TRY(backend->synchronize(exec->device));
    TRY(start_checked(exec, batch, rates, fingerprints));
    TRY(exec_collect(exec));
    TRY(restore_store(exec, before));
    TRY(start_checked(exec, batch, rates, fingerprints + count));
    for (int i = 0; i < count; i++)
        if (fingerprints[i] != fingerprints[count + i]) return report_difference(exec, before, i);
    return OK;
}

bool exec_can_repeat(const struct exec *exec)
{
    return exec->program->training && (!exec->device->waits || exec->options.deterministic);
}

enum status exec_start_redundant(struct exec *exec, const struct exec_batch *batch,
                                 const struct update_rates *rates)
{
    assert(exec_can_repeat(exec) && exec->started == exec->collected);
    struct device *device = exec->device;
    struct execution_check counted;
    TRY(check_walk(exec, -1, &counted));
    size_t bytes = 2 * (size_t)counted.tensors * sizeof(uint64_t);
    void *before = memory_try((size_t)exec->options.store->layout.bytes, 1);
    uint64_t *fingerprints = before ? device_host_allocate(device, bytes, "fingerprints", NULL) : NULL;
    enum status status = OK;
    if (fingerprints) {
        memset(fingerprints, 0, bytes);
        status = start_both_runs(exec, batch, rates, before, fingerprints, counted.tensors);
        device_host_release(device, fingerprints, bytes);
    } else {
        status = fail(FAILED, "not enough host memory for the copy of the parameters that run.verify_every "
                      "needs");
    }
    free(before);
    return status;
}
