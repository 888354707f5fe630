/* glimpse.c: a small copy of a step's statistics, queued with it, which is read when the step is collected,
 * after the next one has changed the device's memory. */
#include <assert.h>
#include <math.h>

#include "exec/exec_checks.h"
#include "exec/exec_parts.h"

#define FIRST 64             /* elements of a gradient: enough to see in most cases that it is not all
                              * zeros */

static int64_t gradient_count(const struct exec *exec, int param)
{
    int value = exec->program->gradients[param];
    if (value < 0) return 0;
    int64_t count = shape_count(exec->program->values[value].shape);
    return count < FIRST ? count : FIRST;
}

static int64_t statistic_count(const struct exec *exec, int param)
{
    const struct op_param *spec = &exec->program->graph->params[param].spec;
    return spec->role == ROLE_STATISTIC && spec->dtype == F32 ? shape_count(spec->shape) : 0;
}

/* The numbers of each parameter lie one after another: of its gradient, or if it is a statistic its own. */
static int64_t count_before(const struct exec *exec, int param)
{
    int64_t count = 0;
    for (int p = 0; p < param; p++) count += gradient_count(exec, p) + statistic_count(exec, p);
    return count;
}

size_t glimpse_bytes(const struct exec *exec)
{
    return (size_t)(count_before(exec, exec->program->graph->param_count) + 1) * sizeof(float);
}

static enum status queue_param(struct exec *exec, int param, float *to)
{
    const struct device_backend *backend = exec->device->backend;
    const struct store *store = exec->options.store;
    int64_t gradient = gradient_count(exec, param), statistic = statistic_count(exec, param);
    const char *master = (const char *)store->memory + store->layout.params[param].master;
    const void *from = gradient > 0 ? exec_address(exec, NULL, exec->program->gradients[param]) : master;
    size_t bytes = (size_t)(gradient + statistic) * sizeof *to;
    return bytes > 0 ? backend->transfers.download(exec->device, 0, to, from, bytes) : OK;
}

enum status glimpse_queue(struct exec *exec, struct exec_slot *slot)
{
    if (!slot->glimpse)
        slot->glimpse = device_host_allocate(exec->device, glimpse_bytes(exec), "a look at gradients", NULL);
    if (!slot->glimpse) return OK;
    float *to = slot->glimpse;
    for (int p = 0; p < exec->program->graph->param_count; p++) {
        TRY(queue_param(exec, p, to));
        to += gradient_count(exec, p) + statistic_count(exec, p);
    }
    slot->glimpsed = true;
    return OK;
}

void exec_glimpse_next(struct exec *exec)
{
    assert(exec->program->training);
    exec->glimpse_next = true;
}

bool exec_glimpsed(const struct exec *exec)
{
    return exec->last && exec->last->glimpsed;
}

bool exec_glimpse_zero(const struct exec *exec, int param)
{
    const float *numbers = exec->last->glimpse + count_before(exec, param);
    assert(exec_glimpsed(exec) && exec->program->gradients[param] >= 0);
    for (int64_t i = 0; i < gradient_count(exec, param); i++)
        if (numbers[i] != 0) return false;
    return true;
}

const char *exec_glimpse_not_finite(const struct exec *exec)
{
    const float *numbers = exec->last->glimpse;
    assert(exec_glimpsed(exec));
    for (int p = 0; p < exec->program->graph->param_count; p++) {
        int64_t count = statistic_count(exec, p);
        for (int64_t i = 0; i < count; i++)
            if (!isfinite(numbers[i])) return exec->program->graph->params[p].name;
        numbers += gradient_count(exec, p) + count;
    }
    return NULL;
}
