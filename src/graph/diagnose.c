/* diagnose.c: names the first place where a run leaves the finite numbers. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "graph/exec_parts.h"

#define CHUNK 65536

enum finding { FINITE, HOLDS_INF, HOLDS_NAN };
static const char *const finding_names[] = {[FINITE] = "", [HOLDS_INF] = "Inf", [HOLDS_NAN] = "NaN"};

/* The first number that is not finite decides what is said. */
static enum finding scan(const float *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(numbers[i])) return isnan(numbers[i]) ? HOLDS_NAN : HOLDS_INF;
    return FINITE;
}

static enum finding scan_range(const struct exec *exec, int id, int64_t first, int64_t count)
{
    float *numbers = memory_new(CHUNK, sizeof *numbers);
    enum finding finding = FINITE;
    for (int64_t at = first, end = first + count; finding == FINITE && at < end; at += CHUNK) {
        int64_t length = end - at < CHUNK ? end - at : CHUNK;
        if (exec_fetch(exec, id, at, length, numbers) != OK) break;
        finding = scan(numbers, length);
    }
    free(numbers);
    return finding;
}

static enum finding scan_value(const struct exec *exec, int id)
{
    const struct value *value = &exec->program->values[id];
    if (!dtype_is_float(value->dtype) || value->kind == KIND_WORKSPACE) return FINITE;
    return scan_range(exec, id, 0, shape_count(value->shape));
}

/* Images are looked at one by one, so that the one at fault can be named. */
static bool find_input(const struct exec *exec, struct reason *reason)
{
    const struct program *program = exec->program;
    struct shape one = program->values[program->images].shape;
    one.n = 1;
    for (int image = 0; image < program->batch; image++) {
        enum finding finding = scan_range(exec, program->images, image * shape_count(one), shape_count(one));
        if (finding == FINITE) continue;
        because(reason, "the input image %d of the batch holds %s", image, finding_names[finding]);
        return true;
    }
    return false;
}

static bool find_param(const struct exec *exec, struct reason *reason)
{
    const struct store *store = exec->options.store;
    const struct program *program = exec->program;
    for (int p = 0; p < store->layout.count; p++) {
        const struct op_param *spec = &store->graph->params[p].spec;
        if (spec->dtype != F32) continue;
        float *numbers = memory_new((size_t)shape_count(spec->shape), sizeof *numbers);
        bool read = store_read(store, p, STORE_MASTER, numbers) == OK;
        enum finding finding = read ? scan(numbers, shape_count(spec->shape)) : FINITE;
        free(numbers);
        if (finding == FINITE) continue;
        because(reason, "parameter %s holds %s", store->graph->params[p].name, finding_names[finding]);
        return true;
    }
    for (int v = 0; v < program->value_count; v++) {
        const struct value *value = &program->values[v];
        enum finding finding = value->home == HOME_PARAM && value->low ? scan_value(exec, v) : FINITE;
        if (finding == FINITE) continue;
        because(reason, "parameter %s holds %s as %s", value->name, finding_names[finding],
                dtype_table[value->dtype].name);
        return true;
    }
    return false;
}

static bool find_output(const struct exec *exec, int i, struct reason *reason)
{
    const struct instruction *at = &exec->program->instructions[i];
    for (int k = 0; k < at->write_count; k++) {
        enum finding finding = scan_value(exec, at->writes[k]);
        if (finding == FINITE) continue;
        bool output = at->phase == PHASE_FORWARD && at->writes[k] == at->y;
        const char *what = output ? "output" : exec->program->values[at->writes[k]].name;
        because(reason, "%s: %s holds %s", at->name, what, finding_names[finding]);
        return true;
    }
    return false;
}

enum status exec_diagnose(struct exec *exec, struct reason *finding)
{
    const struct device_backend *backend = exec->device->backend;
    struct reason found = {""};
    TRY(backend->finish(exec->device));
    bool done = find_input(exec, &found) || find_param(exec, &found);
    exec_bind(exec, exec->last);
    for (int i = 0; !done && i < exec->program->count; i++) {
        if (exec->program->instructions[i].phase == PHASE_UPDATE) break;
        TRY(exec_step(exec, i));
        TRY(backend->finish(exec->device));
        done = find_output(exec, i, &found);
    }
    *finding = found;
    return OK;
}
