/* engines.c: what ops prepare for the shapes of a program, and the scratch memory they then ask for. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/build.h"

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
           tensors_alike(&a->d_y, &b->d_y, 1);
}

struct preparation {
    struct program *program;
    struct engines *engines;
    struct engine_use *uses;
    struct call_storage storage[4];
};

/* An earlier engine made for the same op, settings, shapes and types; -1. Settings that hold a
 * pointer compare unequal, which costs a second engine and nothing else. */
static int engine_alike(struct preparation *p, int engine, const struct call *call)
{
    const struct op *op = p->engines->op[engine];
    for (int e = 0; e < engine; e++) {
        if (p->engines->op[e] != op || !p->engines->engine[e]) continue;
        struct call other = engine_call(p->program, &p->uses[e], &p->storage[2], &p->storage[3]);
        if (op->settings_size > 0 && memcmp(other.settings, call->settings, op->settings_size) != 0) continue;
        if (calls_alike(call, &other)) return e;
    }
    return -1;
}

static enum status engine_prepare(struct preparation *p, int engine)
{
    int forward = p->uses[engine].at[PHASE_FORWARD];
    if (forward < 0) return OK;
    const struct op *op = p->program->instructions[forward].op;
    p->engines->op[engine] = op;
    const struct op_code *code = p->engines->code_of(op);
    if (!code->prepare) return OK;
    struct call call = engine_call(p->program, &p->uses[engine], &p->storage[0], &p->storage[1]);
    int alike = engine_alike(p, engine, &call);
    if (alike >= 0) {
        p->engines->engine[engine] = p->engines->engine[alike];
        return OK;
    }
    return code->prepare(&call, &p->engines->engine[engine]);
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

static void workspaces_ask(struct preparation *p)
{
    for (int i = 0; i < p->program->count; i++) {
        const struct instruction *at = &p->program->instructions[i];
        if (!at->op) continue;
        const struct op_code *code = p->engines->code_of(at->op);
        struct call call = program_call(p->program, i, &p->storage[0]);
        if (at->engine >= 0) call.engine = p->engines->engine[at->engine];
        workspace_set(p->program, i, code->workspace ? (int64_t)code->workspace(&call) : 0);
    }
}

enum status engines_prepare(struct program *program, const struct op_code *(*code_of)(const struct op *),
                            struct engines *engines)
{
    struct engines made = {.count = program->engine_count, .code_of = code_of};
    made.engine = memory_new((size_t)made.count, sizeof *made.engine);
    made.op = memory_new((size_t)made.count, sizeof *made.op);
    struct preparation *p = memory_new(1, sizeof *p);
    *p = (struct preparation){.program = program, .engines = &made, .uses = engine_uses(program)};
    enum status status = OK;
    for (int e = 0; status == OK && e < made.count; e++) status = engine_prepare(p, e);
    if (status == OK) workspaces_ask(p);
    free(p->uses);
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
        const struct op_code *code = engines->op[e] ? engines->code_of(engines->op[e]) : NULL;
        if (!engines->engine[e] || released_before(engines, e)) continue;
        if (code->release) code->release(engines->engine[e]);
    }
    free(engines->engine);
    free(engines->op);
    *engines = (struct engines){0};
}
