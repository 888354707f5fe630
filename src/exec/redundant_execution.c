/* redundant_execution.c: runs a training step twice from the same state and compares everything that it
 * wrote, to detect silent data corruption. Fingerprints represent the first execution's tensors, which the
 * second one overwrites. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/exec_checks.h"
#include "exec/exec_parts.h"

enum status check_instruction(const struct exec *exec, int i)
{
    const struct instruction *at = &exec->program->instructions[i];
    FOR_WRITES(o, at) {
        const struct value *value = &exec->program->values[o->value];
        bool output = at->phase == PHASE_FORWARD && o->role == OPERAND_Y;
        /* Offloaded tensors are checked when they have been copied back. Padding between exchanged gradients
         * is undefined; their results are checked in the store. */
        if (value->kind == KIND_WORKSPACE || value->home == HOME_HOST) continue;
        if (value->kind == KIND_EXCHANGE || value->divided) continue;
        TRY(check_tensor(exec, exec->check, &(struct checked_tensor){
            .data = exec_address(exec, &exec->slots[0], o->value),
            .bytes = (size_t)shape_count(value->shape) * dtype_bytes(value->dtype),
            .stream = at->stream, .whose = at->name, .what = output ? "output" : value->name,
        }));
    }
    return OK;
}

/* Counts the tensors, or finds the name of one, without running. */
static enum status check_walk(struct exec *exec, int sought, struct execution_check *counted)
{
    *counted = (struct execution_check){.sought = sought};
    exec->check = counted;
    enum status status = OK;
    for (int i = 0; status == OK && i < exec->program->count; i++) status = check_instruction(exec, i);
    if (status == OK) status = check_store(exec, exec->check);
    exec->check = NULL;
    return status;
}

/* On return the run has ended on the device, but is not collected. */
static enum status start_checked(struct exec *exec, const struct exec_batch *batch,
                                 const struct update_rates *rates, uint64_t *fingerprints)
{
    struct execution_check check = {.fingerprints = fingerprints, .sought = -1};
    exec->check = &check;
    enum status status = exec_start(exec, batch, rates);
    if (status == OK) status = check_store(exec, exec->check);
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
