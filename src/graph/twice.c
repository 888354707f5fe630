/* twice.c: a training step run twice from the same state, and all that it wrote compared: finds hardware that
 * errs now and then. Checksums stand for the first run's tensors, which the second one overwrites. */
#include <assert.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "graph/exec_parts.h"

struct witness {
    uint32_t *sums;          /* of what the first run wrote, in the order of its instructions */
    int count;
    bool second;
    int seen;                /* by the second run */
    struct reason differs;   /* the first that is not the same; empty: all is */
};

static void see(struct witness *witness, const void *data, size_t bytes, const char *whose, const char *what)
{
    uint32_t sum = crc32c(0, data, bytes);
    if (!witness->second) {
        *array_push(witness->sums, witness->count) = sum;
        return;
    }
    assert(witness->seen < witness->count);
    if (sum == witness->sums[witness->seen++] || witness->differs.text[0]) return;
    because(&witness->differs, "%s: %s", whose, what);
}

void witness_instruction(const struct exec *exec, int i)
{
    const struct instruction *at = &exec->program->instructions[i];
    for (int k = 0; k < at->write_count; k++) {
        const struct value *value = &exec->program->values[at->writes[k]];
        bool output = at->phase == PHASE_FORWARD && at->writes[k] == at->y;
        if (value->kind == KIND_WORKSPACE) continue;
        size_t bytes = (size_t)shape_count(value->shape) * dtype_bytes(value->dtype);
        see(exec->witness, exec_address(exec, &exec->slots[0], at->writes[k]), bytes, at->name,
            output ? "output" : value->name);
    }
}

/* All that the update writes, of which instructions name only what ops read. */
static void witness_store(const struct exec *exec)
{
    const struct store *store = exec->options.store;
    const char *memory = store->memory;
    for (int p = 0; p < store->layout.count; p++) {
        const struct store_slot *slot = &store->layout.params[p];
        const struct parameter *param = &store->graph->params[p];
        size_t count = (size_t)shape_count(param->spec.shape);
        see(exec->witness, memory + slot->master, count * dtype_bytes(param->spec.dtype), param->name,
            "master");
        for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++)
            if (slot->slots[s] != STORE_NONE)
                see(exec->witness, memory + slot->slots[s], count * sizeof(float), param->name,
                    exec->options.optimizer->slot_names[s]);
        if (slot->average != STORE_NONE)
            see(exec->witness, memory + slot->average, count * dtype_bytes(param->spec.dtype), param->name,
                "average");
    }
    see(exec->witness, memory + store->layout.state, sizeof(struct optimizer_state), "update",
        "loss scale and counters");
}

static enum status start_seen(struct exec *exec, const struct exec_batch *batch,
                              const struct update_rates *rates)
{
    TRY(exec_start(exec, batch, rates));
    witness_store(exec);
    return OK;
}

static enum status set_store(struct exec *exec, const void *bytes)
{
    const struct store *store = exec->options.store;
    const struct device_backend *backend = exec->device->backend;
    TRY(backend->upload(exec->device, 0, store->memory, bytes, (size_t)store->layout.bytes));
    return backend->finish(exec->device);
}

static enum status start_both(struct exec *exec, const struct exec_batch *batch,
                              const struct update_rates *rates, void *before)
{
    const struct store *store = exec->options.store;
    const struct device_backend *backend = exec->device->backend;
    TRY(backend->download(exec->device, 0, before, store->memory, (size_t)store->layout.bytes));
    TRY(backend->finish(exec->device));
    TRY(start_seen(exec, batch, rates));
    TRY(exec_collect(exec));
    TRY(set_store(exec, before));
    exec->witness->second = true;
    TRY(start_seen(exec, batch, rates));
    if (!exec->witness->differs.text[0]) return OK;
    TRY(exec_collect(exec));
    TRY(set_store(exec, before));
    long long step = exec_state(exec)->step;
    return fail(FAILED, "step %lld, run twice from the same state, gave different bits, first in %s: this "
                "machine's memory or processor cannot be relied on", step, exec->witness->differs.text);
}

bool exec_can_repeat(const struct exec *exec)
{
    return !exec->device->waits && exec->program->training;
}

enum status exec_start_twice(struct exec *exec, const struct exec_batch *batch,
                             const struct update_rates *rates)
{
    assert(exec_can_repeat(exec));
    struct witness witness = {.sums = NULL};
    void *before = memory_try((size_t)exec->options.store->layout.bytes, 1);
    if (!before) return fail(FAILED, "no memory for a second copy of the parameters, to run a step twice");
    exec->witness = &witness;
    enum status status = start_both(exec, batch, rates, before);
    exec->witness = NULL;
    free(witness.sums);
    free(before);
    return status;
}
