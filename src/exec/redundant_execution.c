/* twice.c: a training step run twice from the same state, and all that it wrote compared: finds hardware that
 * errs now and then. Fingerprints stand for the first run's tensors, which the second one overwrites. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/exec_parts.h"
#include "kernels/fingerprint.h"

/* Something that a step writes, and where that is. */
struct sight {
    const void *data;
    size_t bytes;
    int stream;
    const char *whose, *what;
};

/* What a run's sights, which are the same ones in the same order each time, come to. */
struct witness {
    uint64_t *fingerprints;  /* host memory of the device's kind; NULL: they are only counted */
    int seen;
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

static enum status see(const struct exec *exec, const struct sight *sight)
{
    struct witness *witness = exec->witness;
    struct device *device = exec->device;
    int index = witness->seen++;
    if (index == witness->sought) because(&witness->name, "%s: %s", sight->whose, sight->what);
    if (!witness->fingerprints) return OK;
    void *stream = device->backend->stream(device, sight->stream);
    return fingerprint_on(device->backend->kind)->take(device, stream, sight->data, sight->bytes,
                                                       &witness->fingerprints[index]);
}

enum status witness_instruction(const struct exec *exec, int i)
{
    const struct instruction *at = &exec->program->instructions[i];
    for (int k = 0; k < at->write_count; k++) {
        const struct value *value = &exec->program->values[at->writes[k]];
        bool output = at->phase == PHASE_FORWARD && at->writes[k] == at->y;
        /* What leaves is seen when it is back. Between the parts of what is exchanged lies anything; what
         * comes of them is seen in the store. */
        if (value->kind == KIND_WORKSPACE || value->home == HOME_HOST) continue;
        if (value->kind == KIND_EXCHANGE || value->divided) continue;
        TRY(see(exec, &(struct sight){
            .data = exec_address(exec, &exec->slots[0], at->writes[k]),
            .bytes = (size_t)shape_count(value->shape) * dtype_bytes(value->dtype),
            .stream = at->stream, .whose = at->name, .what = output ? "output" : value->name,
        }));
    }
    return OK;
}

/* All that the update writes, of which instructions name only what ops read. */
static enum status witness_store(const struct exec *exec)
{
    const struct store *store = exec->options.store;
    const char *memory = store->memory;
    for (int p = 0; p < store->layout.count; p++) {
        const struct store_slot *slot = &store->layout.params[p];
        const struct parameter *param = &store->graph->params[p];
        size_t count = (size_t)shape_count(param->spec.shape), bytes = count * dtype_bytes(param->spec.dtype);
        TRY(see(exec, &(struct sight){memory + slot->master, bytes, 0, param->name, "master"}));
        for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++)
            if (slot->slots[s] != STORE_NONE)
                TRY(see(exec, &(struct sight){memory + slot->slots[s], count * sizeof(float), 0, param->name,
                                              exec->options.optimizer->slot_names[s]}));
        if (slot->average != STORE_NONE)
            TRY(see(exec, &(struct sight){memory + slot->average, bytes, 0, param->name, "average"}));
    }
    return see(exec, &(struct sight){memory + store->layout.state, sizeof(struct optimizer_state), 0,
                                     "update", "loss scale and counters"});
}

/* Counts the sights, or finds one's name, without running. */
static enum status witness_walk(struct exec *exec, int sought, struct witness *walked)
{
    *walked = (struct witness){.sought = sought};
    exec->witness = walked;
    enum status status = OK;
    for (int i = 0; status == OK && i < exec->program->count; i++) status = witness_instruction(exec, i);
    if (status == OK) status = witness_store(exec);
    exec->witness = NULL;
    return status;
}

/* The run is over on the device when this returns, but not collected. */
static enum status start_seen(struct exec *exec, const struct exec_batch *batch,
                              const struct update_rates *rates, uint64_t *fingerprints)
{
    struct witness witness = {.fingerprints = fingerprints, .sought = -1};
    exec->witness = &witness;
    enum status status = exec_start(exec, batch, rates);
    if (status == OK) status = witness_store(exec);
    exec->witness = NULL;
    TRY(status);
    return exec->device->backend->synchronize(exec->device);
}

static enum status set_store(struct exec *exec, const void *bytes)
{
    const struct store *store = exec->options.store;
    const struct device_backend *backend = exec->device->backend;
    TRY(backend->transfers.upload(exec->device, 0, store->memory, bytes, (size_t)store->layout.bytes));
    return backend->synchronize(exec->device);
}

/* Undoes the second run. */
static enum status refuse(struct exec *exec, const void *before, int different)
{
    struct witness walked;
    TRY(exec_collect(exec));
    TRY(set_store(exec, before));
    TRY(witness_walk(exec, different, &walked));
    long long step = exec_state(exec)->step;
    return fail(FAILED, "step %lld, run twice from the same state, gave different bits, first in %s: the "
                "memory or processor of this machine is faulty", step, walked.name.text);
}

/* fingerprints: of `count` sights for each run, 0. */
static enum status start_both(struct exec *exec, const struct exec_batch *batch,
                              const struct update_rates *rates, void *before, uint64_t *fingerprints,
                              int count)
{
    const struct store *store = exec->options.store;
    const struct device_backend *backend = exec->device->backend;
    TRY(backend->transfers.download(exec->device, 0, before, store->memory, (size_t)store->layout.bytes));
    TRY(backend->synchronize(exec->device));
    TRY(start_seen(exec, batch, rates, fingerprints));
    TRY(exec_collect(exec));
    TRY(set_store(exec, before));
    TRY(start_seen(exec, batch, rates, fingerprints + count));
    for (int i = 0; i < count; i++)
        if (fingerprints[i] != fingerprints[count + i]) return refuse(exec, before, i);
    return OK;
}

bool exec_can_repeat(const struct exec *exec)
{
    return exec->program->training && (!exec->device->waits || exec->options.deterministic);
}

enum status exec_start_twice(struct exec *exec, const struct exec_batch *batch,
                             const struct update_rates *rates)
{
    assert(exec_can_repeat(exec) && exec->started == exec->collected);
    struct device *device = exec->device;
    struct witness walked;
    TRY(witness_walk(exec, -1, &walked));
    size_t bytes = 2 * (size_t)walked.seen * sizeof(uint64_t);
    void *before = memory_try((size_t)exec->options.store->layout.bytes, 1);
    uint64_t *fingerprints = before ? device_host_allocate(device, bytes, "fingerprints", NULL) : NULL;
    enum status status = OK;
    if (fingerprints) {
        memset(fingerprints, 0, bytes);
        status = start_both(exec, batch, rates, before, fingerprints, walked.seen);
        device_host_release(device, fingerprints, bytes);
    } else {
        status = fail(FAILED, "not enough host memory for the copy of the parameters that run.verify_every "
                      "needs");
    }
    free(before);
    return status;
}
