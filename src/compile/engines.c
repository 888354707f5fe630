/* engines.c: what ops prepare for the shapes of a program, and the scratch memory they then ask for. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/build.h"

/* The instructions of one engine that tell shapes: the first of each phase. -1: there is none. */
struct engine_use {
    int at[PHASE_COUNT];
};

static struct engine_use *engine_uses(const struct program *program)
{
    struct engine_use *uses = memory_new((size_t)program->engine_count, sizeof *uses);
    for (int e = 0; e < program->engine_count; e++)
        for (int p = 0; p < PHASE_COUNT; p++) uses[e].at[p] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->engine >= 0 && uses[at->engine].at[at->phase] < 0) uses[at->engine].at[at->phase] = i;
    }
    return uses;
}

/* The forward call, with the shapes of the gradients that backward will be asked for. */
static struct call engine_call(const struct program *program, const struct engine_use *use,
                               struct call_storage *storage, struct call_storage *scratch)
{
    struct call call = program_call(program, use->at[PHASE_FORWARD], storage);
    static const enum phase phases[] = {PHASE_BACKWARD, PHASE_BACKWARD_DATA, PHASE_BACKWARD_PARAMS};
    for (int p = 0; p < 3; p++) {
        if (use->at[phases[p]] < 0) continue;
        struct call back = program_call(program, use->at[phases[p]], scratch);
        call.d_y = back.d_y;
        call.d_y_more = back.d_y_more;
        for (int i = 0; i < call.x_count; i++)
            if (back.d_x[i].shape.rank > 0) call.d_x[i] = back.d_x[i];
        for (int i = 0; i < call.param_count; i++)
            if (back.d_params[i].shape.rank > 0) call.d_params[i] = back.d_params[i];
    }
    return call;
}

static bool tensors_alike(const struct tensor *a, const struct tensor *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i].dtype != b[i].dtype || !shape_equal(a[i].shape, b[i].shape)) return false;
    return true;
}

static bool calls_alike(const struct call *a, const struct call *b)
{
    return a->x_count == b->x_count && a->param_count == b->param_count && a->saved_count == b->saved_count &&
           tensors_alike(a->x, b->x, a->x_count) && tensors_alike(a->d_x, b->d_x, a->x_count) &&
           tensors_alike(a->params, b->params, a->param_count) &&
           tensors_alike(a->d_params, b->d_params, a->param_count) &&
           tensors_alike(a->saved, b->saved, a->saved_count) && tensors_alike(&a->y, &b->y, 1) &&
           tensors_alike(&a->d_y, &b->d_y, 1) && tensors_alike(&a->d_y_more, &b->d_y_more, 1) &&
           tensors_alike(&a->sums, &b->sums, 1) && tensors_alike(&a->mask, &b->mask, 1);
}

struct preparation {
    struct program *program;
    struct engines *engines;
    struct engine_use *uses;
    int *alike;                  /* by engine: the earlier one that serves it too; -1: none */
    struct call_storage storage[4];
};

/* An earlier engine made for the same op, settings, shapes and types; -1. Settings that hold a
 * pointer compare unequal, which costs a second engine and nothing else. */
static int engine_alike(struct preparation *p, int engine, const struct call *call)
{
    const struct op *op = p->engines->op[engine];
    for (int e = 0; e < engine; e++) {
        if (p->engines->op[e] != op || p->alike[e] >= 0) continue;
        struct call other = engine_call(p->program, &p->uses[e], &p->storage[2], &p->storage[3]);
        if (op->settings_size > 0 && memcmp(other.settings, call->settings, op->settings_size) != 0) continue;
        if (calls_alike(call, &other)) return e;
    }
    return -1;
}

static const struct op_code *code_reference_or_cpu(const struct op *op)
{
    return op_cpu(op);
}

static const struct op_code *code_cuda(const struct op *op)
{
    return op->cuda;
}

const struct op_code *(*engines_code(enum device_kind kind))(const struct op *op)
{
    switch (kind) {
    case DEVICE_CPU: return code_reference_or_cpu;
    case DEVICE_CUDA: return code_cuda;
    }
    return NULL;
}

static void heed(struct call *call, const struct engine_options *options)
{
    call->device = options->device;
    call->tf32 = options->tf32;
    call->deterministic = options->deterministic;
}

/* Whether an engine must be prepared: it has code that prepares, and no earlier one is like it. */
static bool engine_is_first(struct preparation *p, int engine)
{
    int forward = p->uses[engine].at[PHASE_FORWARD];
    if (forward < 0) return false;
    const struct op *op = p->program->instructions[forward].op;
    p->engines->op[engine] = op;
    if (!p->engines->options.code_of(op)->prepare) return false;
    struct call call = engine_call(p->program, &p->uses[engine], &p->storage[0], &p->storage[1]);
    p->alike[engine] = engine_alike(p, engine, &call);
    return p->alike[engine] < 0;
}

static enum status engine_prepare(const struct preparation *p, int engine)
{
    struct call_storage *storage = memory_new(2, sizeof *storage);
    struct call call = engine_call(p->program, &p->uses[engine], &storage[0], &storage[1]);
    heed(&call, &p->engines->options);
    const struct op_code *code = p->engines->options.code_of(p->engines->op[engine]);
    enum status status = code->prepare(&call, &p->engines->engine[engine]);
    free(storage);
    return status;
}

/* Those that may be prepared side by side, then the others. */
static enum status engines_prepare_first(struct preparation *p, const int *first, int count)
{
    enum status status = OK;
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < count; i++) {
        if (!p->engines->options.code_of(p->engines->op[first[i]])->prepare_together) continue;
        enum status one = engine_prepare(p, first[i]);
#pragma omp critical
        if (one != OK) status = one;
    }
    for (int i = 0; status == OK && i < count; i++)
        if (!p->engines->options.code_of(p->engines->op[first[i]])->prepare_together)
            status = engine_prepare(p, first[i]);
    return status;
}

static enum status engines_prepare_all(struct preparation *p)
{
    int *first = memory_new((size_t)p->engines->count, sizeof *first);
    int count = 0;
    for (int e = 0; e < p->engines->count; e++) {
        p->alike[e] = -1;
        if (engine_is_first(p, e)) first[count++] = e;
    }
    enum status status = engines_prepare_first(p, first, count);
    for (int e = 0; e < p->engines->count; e++)
        if (p->alike[e] >= 0) p->engines->engine[e] = p->engines->engine[p->alike[e]];
    free(first);
    return status;
}

static enum status codes_check(const struct program *program, const struct engine_options *options)
{
    for (int i = 0; i < program->count; i++) {
        const struct op *op = program->instructions[i].op;
        if (op && !options->code_of(op)) return fail(NO_DEVICE, "%s: op %s has no code for this device",
                                                     program->instructions[i].name, op->name);
    }
    return OK;
}

static void workspace_set(struct program *program, int i, int64_t bytes)
{
    struct instruction *at = &program->instructions[i];
    if (at->workspace >= 0) {
        struct value *value = &program->values[at->workspace];
        value->shape = shape_vector(bytes);
        value->bytes = bytes;
    } else if (bytes > 0) {
        struct value value = {.home = HOME_ARENA, .kind = KIND_WORKSPACE, .dtype = U8, .node = at->node,
                              .index = -1, .shape = shape_vector(bytes)};
        at->workspace = build_value(program, value, text_format("%s workspace", at->name));
        instruction_link(program, at);
    }
}

void engines_ask(const struct engines *engines, struct program *program)
{
    struct call_storage *storage = memory_new(1, sizeof *storage);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!at->op) continue;
        const struct op_code *code = engines->options.code_of(at->op);
        struct call call = program_call(program, i, storage);
        heed(&call, &engines->options);
        if (at->engine >= 0) call.engine = engines->engine[at->engine];
        workspace_set(program, i, code->workspace ? (int64_t)code->workspace(&call) : 0);
    }
    free(storage);
}

enum status engines_prepare(struct program *program, const struct engine_options *options,
                            struct engines *engines)
{
    TRY(codes_check(program, options));
    struct engines made = {.count = program->engine_count, .options = *options};
    made.engine = memory_new((size_t)made.count, sizeof *made.engine);
    made.op = memory_new((size_t)made.count, sizeof *made.op);
    struct preparation *p = memory_new(1, sizeof *p);
    *p = (struct preparation){.program = program, .engines = &made, .uses = engine_uses(program)};
    p->alike = memory_new((size_t)made.count, sizeof *p->alike);
    enum status status = engines_prepare_all(p);
    if (status == OK) engines_ask(&made, program);
    free(p->uses);
    free(p->alike);
    free(p);
    if (status != OK) engines_release(&made);
    else *engines = made;
    return status;
}

static bool released_before(const struct engines *engines, int engine)
{
    for (int e = 0; e < engine; e++)
        if (engines->engine[e] == engines->engine[engine]) return true;
    return false;
}

void engines_release(struct engines *engines)
{
    for (int e = 0; e < engines->count; e++) {
        const struct op_code *code = engines->op[e] ? engines->options.code_of(engines->op[e]) : NULL;
        if (!engines->engine[e] || released_before(engines, e)) continue;
        if (code->release) code->release(engines->engine[e]);
    }
    free(engines->engine);
    free(engines->op);
    *engines = (struct engines){0};
}
