/* diagnose.c: names the first tensor in which a run produced NaN or Inf. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "exec/exec_checks.h"
#include "exec/exec_parts.h"

#define CHUNK 65536

enum finding { FINITE, HOLDS_INF, HOLDS_NAN };
static const char *const finding_names[] = {[FINITE] = "", [HOLDS_INF] = "Inf", [HOLDS_NAN] = "NaN"};

/* The first value that is not finite decides what is reported. */
static enum finding diagnose_scan(const float *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(numbers[i])) return isnan(numbers[i]) ? HOLDS_NAN : HOLDS_INF;
    return FINITE;
}

static enum status diagnose_scan_range(const struct exec *exec, int id, int64_t first, int64_t count,
                                       enum finding *finding)
{
    float *numbers = memory_new(CHUNK, sizeof *numbers);
    enum status status = OK;
    *finding = FINITE;
    for (int64_t at = first, end = first + count; status == OK && !*finding && at < end; at += CHUNK) {
        int64_t length = end - at < CHUNK ? end - at : CHUNK;
        status = exec_fetch(exec, id, at, length, numbers);
        if (status == OK) *finding = diagnose_scan(numbers, length);
    }
    free(numbers);
    return status;
}

static enum status diagnose_scan_value(const struct exec *exec, int id, enum finding *finding)
{
    const struct value *value = &exec->program->values[id];
    *finding = FINITE;
    if (!dtype_is_float(value->dtype) || value->kind == KIND_WORKSPACE) return OK;
    return diagnose_scan_range(exec, id, 0, shape_count(value->shape), finding);
}

/* All images of the batch, or of one micro-batch. */
static struct exec_finding found_in(const struct program *program, int micro_batch)
{
    int images = program->batch / program->micro_batches;
    if (micro_batch < 0) return (struct exec_finding){.last = program->batch - 1};
    return (struct exec_finding){.first = micro_batch * images, .last = (micro_batch + 1) * images - 1};
}

/* True if a value has a part for each image, of which there are then `images`. */
static bool is_by_image(const struct value *value, int images)
{
    return value->shape.rank == 4 && value->shape.n == images && value->kind != KIND_PARAM_GRADIENT;
}

/* The images of the value that hold what is not finite, where it is known that some do. */
static enum status diagnose_images(const struct exec *exec, int id, struct exec_finding *found)
{
    struct shape one = exec->program->values[id].shape;
    int images = found->last - found->first + 1, first = -1, last = -1;
    if (!is_by_image(&exec->program->values[id], images)) return OK;
    one.n = 1;
    for (int i = 0; i < images; i++) {
        enum finding finding;
        TRY(diagnose_scan_range(exec, id, i * shape_count(one), shape_count(one), &finding));
        if (finding == FINITE) continue;
        if (first < 0) first = i;
        last = i;
    }
    if (first < 0) return OK;
    found->last = found->first + last;
    found->first += first;
    return OK;
}

/* Search functions leave *found unchanged if all is finite. */

/* The batch itself: images, and targets that are not labels. */
static enum status find_input(const struct exec *exec, int id, const char *what, struct exec_finding *found)
{
    enum finding finding;
    if (id < 0) return OK;
    TRY(diagnose_scan_value(exec, id, &finding));
    if (finding == FINITE) return OK;
    *found = found_in(exec->program, -1);
    found->input = true;
    because(&found->what, "the %s %s", what, finding_names[finding]);
    return diagnose_images(exec, id, found);
}

static enum status diagnose_scan_master(const struct store *store, int param, enum finding *finding)
{
    const struct op_param *spec = &store->graph->params[param].spec;
    *finding = FINITE;
    if (spec->dtype != F32) return OK;
    float *numbers = memory_new((size_t)shape_count(spec->shape), sizeof *numbers);
    enum status status = store_read(store, param, STORE_MASTER, numbers);
    if (status == OK) *finding = diagnose_scan(numbers, shape_count(spec->shape));
    free(numbers);
    return status;
}

static enum status find_master(const struct exec *exec, struct exec_finding *found)
{
    const struct store *store = exec->options.store;
    for (int p = 0; p < store->layout.count; p++) {
        enum finding finding;
        TRY(diagnose_scan_master(store, p, &finding));
        if (finding == FINITE) continue;
        *found = found_in(exec->program, -1);
        because(&found->what, "parameter %s contains %s",
                store->graph->params[p].name, finding_names[finding]);
        return OK;
    }
    return OK;
}

static enum status find_copy(const struct exec *exec, struct exec_finding *found)
{
    for (int v = 0; v < exec->program->value_count; v++) {
        const struct value *value = &exec->program->values[v];
        enum finding finding = FINITE;
        if (value->home == HOME_PARAM && value->low) TRY(diagnose_scan_value(exec, v, &finding));
        if (finding == FINITE) continue;
        *found = found_in(exec->program, -1);
        because(&found->what, "parameter %s contains %s as %s", value->name, finding_names[finding],
                dtype_table[value->dtype].name);
        return OK;
    }
    return OK;
}

static bool is_found(const struct exec_finding *found)
{
    return found->what.text[0] != '\0';
}

static enum status find_param(const struct exec *exec, struct exec_finding *found)
{
    TRY(find_master(exec, found));
    return is_found(found) ? OK : find_copy(exec, found);
}

static enum status find_output(const struct exec *exec, int i, struct exec_finding *found)
{
    const struct program *program = exec->program;
    const struct instruction *at = &program->instructions[i];
    if (instruction_is_copy(at)) return OK;
    FOR_WRITES(o, at) {
        enum finding finding;
        TRY(diagnose_scan_value(exec, o->value, &finding));
        if (finding == FINITE) continue;
        bool output = at->phase == PHASE_FORWARD && o->role == OPERAND_Y;
        const char *what = output ? "output" : program->values[o->value].name;
        *found = found_in(program, at->micro_batch);
        because(&found->what, "%s: %s contains %s", at->name, what, finding_names[finding]);
        return diagnose_images(exec, o->value, found);
    }
    return OK;
}

/* For statistics shared among ranks, this rank's are used for all. */
static bool shares_statistics(const struct program *program, const struct instruction *at)
{
    return at->kind == INSTRUCTION_ALL_GATHER && !at->among_stages &&
           program->values[operand_y(at)].kind != KIND_EXCHANGE;
}

static enum status repeat_own(struct exec *exec, const struct instruction *at)
{
    struct device *device = exec->device;
    const struct device_transfers *transfers = &device->backend->transfers;
    size_t bytes = (size_t)exec->program->values[operand_x(at, 0)].bytes;
    char *own = memory_new(bytes, 1), *to = exec_address(exec, NULL, operand_y(at));
    const void *from = exec_address(exec, NULL, operand_x(at, 0));
    enum status status = transfers->download(device, 0, own, from, bytes);
    if (status == OK) status = device->backend->synchronize(device);
    for (int rank = 0; status == OK && rank < comm_count(exec->options.replicas); rank++)
        status = transfers->upload(device, 0, to + (size_t)rank * bytes, own, bytes);
    enum status done = device->backend->synchronize(device);
    free(own);
    return status == OK ? done : status;
}

/* Repeats the last batch, up to the update or the first receive from another stage, and without exchanges,
 * since other ranks may not do the same. `see` is called after each instruction, until it returns true. */
static enum status diagnose_replay(
    struct exec *exec, enum status (*see)(const struct exec *, int i, void *found, bool *enough), void *found)
{
    const struct device_backend *backend = exec->device->backend;
    bool enough = false;
    TRY(backend->synchronize(exec->device));
    exec_bind(exec, exec->last);
    for (int i = 0; i < exec->program->count && !enough; i++) {
        const struct instruction *at = &exec->program->instructions[i];
        if (at->phase == PHASE_UPDATE || at->kind == INSTRUCTION_RECEIVE) break;
        bool shares = shares_statistics(exec->program, at);
        if (!shares && instruction_is_exchange(exec->program, at)) continue;
        TRY(shares ? repeat_own(exec, at) : exec_step(exec, i));
        TRY(backend->synchronize(exec->device));
        TRY(see(exec, i, found, &enough));
    }
    return OK;
}

static const struct exec_finding nothing = {.last = -1};

enum status exec_check_params(const struct exec *exec, struct exec_finding *finding)
{
    struct exec_finding found = nothing;
    TRY(exec->device->backend->synchronize(exec->device));
    TRY(find_param(exec, &found));
    *finding = found;
    return OK;
}

static enum status diagnose_finite(const struct exec *exec, int i, void *found, bool *enough)
{
    TRY(find_output(exec, i, found));
    *enough = is_found(found);
    return OK;
}

enum status exec_diagnose(struct exec *exec, struct exec_finding *finding)
{
    const struct program *program = exec->program;
    struct exec_finding found = nothing;
    TRY(exec->device->backend->synchronize(exec->device));
    TRY(find_input(exec, program->images, "images hold", &found));
    if (!is_found(&found)) TRY(find_input(exec, program->labels, "targets hold", &found));
    if (!is_found(&found)) TRY(find_param(exec, &found));
    if (!is_found(&found)) TRY(diagnose_replay(exec, diagnose_finite, &found));
    *finding = found;
    return OK;
}

/* Most tensors that are not zero show it at once. */
static enum status is_zero(const struct exec *exec, int id, bool *zero)
{
    int64_t count = shape_count(exec->program->values[id].shape);
    float *numbers = memory_new(CHUNK, sizeof *numbers);
    enum status status = OK;
    *zero = true;
    for (int64_t at = 0, length = 64; status == OK && *zero && at < count; at += length, length = CHUNK) {
        length = count - at < length ? count - at : length;
        status = exec_fetch(exec, id, at, length, numbers);
        for (int64_t i = 0; status == OK && *zero && i < length; i++) *zero = numbers[i] == 0;
    }
    free(numbers);
    return status;
}

enum status exec_gradient_is_zero(const struct exec *exec, int param, bool *zero)
{
    TRY(exec->device->backend->synchronize(exec->device));
    return is_zero(exec, exec->program->gradients[param], zero);
}

/* Micro-batches in which a node's output was zero, by node. */
static enum status diagnose_silent(const struct exec *exec, int i, void *silent, bool *enough)
{
    const struct instruction *at = &exec->program->instructions[i];
    bool zero = false;
    if (at->phase != PHASE_FORWARD || at->node < 0) return OK;
    TRY(is_zero(exec, operand_y(at), &zero));
    ((int *)silent)[at->node] += zero;
    return OK;
}

enum status exec_find_silent(struct exec *exec, struct reason *finding)
{
    const struct program *program = exec->program;
    const struct graph *graph = program->graph;
    int *silent = memory_new((size_t)graph->count, sizeof *silent);
    enum status status = diagnose_replay(exec, diagnose_silent, silent);
    *finding = (struct reason){0};
    for (int n = 0; status == OK && n < graph->count && !finding->text[0]; n++)
        if (silent[n] == program->micro_batches)
            because(finding, "%s: output is zero for all images", graph->nodes[n].name);
    free(silent);
    return status;
}

struct viewer {
    void (*see)(void *context, const char *node, const float *numbers, int64_t count);
    void *context;
};

static enum status diagnose_output(const struct exec *exec, int i, void *found, bool *enough)
{
    const struct instruction *at = &exec->program->instructions[i];
    const struct viewer *viewer = found;
    if (at->phase != PHASE_FORWARD || at->node < 0 || instruction_is_copy(at)) return OK;
    int64_t count = shape_count(exec->program->values[operand_y(at)].shape);
    float *numbers = memory_new(CHUNK, sizeof *numbers);
    enum status status = OK;
    for (int64_t first = 0; status == OK && first < count; first += CHUNK) {
        int64_t length = count - first < CHUNK ? count - first : CHUNK;
        status = exec_fetch(exec, operand_y(at), first, length, numbers);
        if (status == OK)
            viewer->see(viewer->context, exec->program->values[operand_y(at)].name, numbers, length);
    }
    free(numbers);
    return status;
}

enum status exec_see_outputs(struct exec *exec,
                             void (*see)(void *context, const char *node, const float *numbers,
                                         int64_t count),
                             void *context)
{
    struct viewer viewer = {see, context};
    return diagnose_replay(exec, diagnose_output, &viewer);
}
