/* kernel_plans.c: has ops prepare kernel plans for the shapes of a program, and allocates the workspaces that
 * these need. */
#include "compile/ir/kernel_plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/watch.h"
#include "compile/ir/call_equal.h"
#include "compile/ir/program_parts.h"

/* The first instruction of each phase of a kernel plan, which have its shapes; -1: none. */
struct kernel_plan_use {
    int at[PHASE_COUNT];
};

static struct kernel_plan_use *kernel_plan_uses(const struct program *program)
{
    struct kernel_plan_use *uses = memory_new((size_t)program->kernel_plan_count, sizeof *uses);
    for (int e = 0; e < program->kernel_plan_count; e++)
        for (int p = 0; p < PHASE_COUNT; p++) uses[e].at[p] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->kernel_plan < 0) continue;
        int *first = &uses[at->kernel_plan].at[at->phase];
        if (*first < 0) *first = i;
    }
    return uses;
}

/* Prepare also asks for what backward adds. */
static void gradients_add(struct call *call, const struct call *back)
{
    static const enum operand_role roles[] = {OPERAND_D_Y_ADDEND, OPERAND_D_X_ADDEND};
    for (int r = 0; r < 2; r++) {
        const struct tensor *tensor = call_operand(back, roles[r]);
        if (tensor) *call_tensor(call, roles[r], 0) = *tensor;
    }
}

/* The forward call, with the shapes of the gradients that backward will be asked for. */
static struct call kernel_plan_call(const struct program *program, const struct kernel_plan_use *use,
                                    struct call_storage *storage, struct call_storage *scratch)
{
    struct call call = program_call(program, use->at[PHASE_FORWARD], storage);
    static const enum phase phases[] = {PHASE_BACKWARD, PHASE_BACKWARD_DATA, PHASE_BACKWARD_PARAMS};
    for (int p = 0; p < 3; p++) {
        if (use->at[phases[p]] < 0) continue;
        struct call back = program_call(program, use->at[phases[p]], scratch);
        call.phases |= AS_BIT(phases[p]);
        call.d_y = back.d_y;
        gradients_add(&call, &back);
        for (int i = 0; i < call.x_count; i++)
            if (back.d_x[i].shape.rank > 0) call.d_x[i] = back.d_x[i];
        for (int i = 0; i < call.param_count; i++)
            if (back.d_params[i].shape.rank > 0) call.d_params[i] = back.d_params[i];
    }
    return call;
}

struct preparation {
    struct program *program;
    struct kernel_plans *kernel_plans;
    struct kernel_plan_use *uses;
    int *equal;                  /* by kernel plan: the earlier one that is shared; -1: none */
    struct call_storage storage[4];
};

/* An earlier kernel plan made for the same op, settings, shapes and types; -1. Settings with a pointer
 * compare unequal, which only costs another kernel plan. */
static int kernel_plan_equal(struct preparation *p, int kernel_plan, const struct call *call)
{
    const struct op *op = p->kernel_plans->op[kernel_plan];
    for (int e = 0; e < kernel_plan; e++) {
        if (p->kernel_plans->op[e] != op || p->equal[e] >= 0) continue;
        struct call other = kernel_plan_call(p->program, &p->uses[e], &p->storage[2], &p->storage[3]);
        if (op->settings_size > 0 && memcmp(other.settings, call->settings, op->settings_size) != 0) continue;
        if (call_equal(call, &other)) return e;
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

code_lookup *kernel_plans_code(enum device_kind kind)
{
    switch (kind) {
    case DEVICE_CPU: return code_reference_or_cpu;
    case DEVICE_CUDA: return code_cuda;
    }
    return NULL;
}

static void call_apply_options(struct call *call, const struct kernel_options *options)
{
    call->device = options->device;
    call->tf32 = options->tf32;
    call->deterministic = options->deterministic;
}

/* True if a kernel plan must be prepared: its code does that, and no earlier one is shared. */
static bool kernel_plan_is_first(struct preparation *p, int kernel_plan)
{
    int forward = p->uses[kernel_plan].at[PHASE_FORWARD];
    if (forward < 0) return false;
    const struct op *op = p->program->instructions[forward].op;
    p->kernel_plans->op[kernel_plan] = op;
    if (!p->kernel_plans->options.code_of(op)->prepare) return false;
    struct call call = kernel_plan_call(p->program, &p->uses[kernel_plan], &p->storage[0], &p->storage[1]);
    p->equal[kernel_plan] = kernel_plan_equal(p, kernel_plan, &call);
    return p->equal[kernel_plan] < 0;
}

static enum status kernel_plan_prepare(const struct preparation *p, int kernel_plan)
{
    struct call_storage *storage = memory_new(2, sizeof *storage);
    struct call call = kernel_plan_call(p->program, &p->uses[kernel_plan], &storage[0], &storage[1]);
    call_apply_options(&call, &p->kernel_plans->options);
    const struct kernel_options *options = &p->kernel_plans->options;
    const struct op *op = p->kernel_plans->op[kernel_plan];
    const struct op_code *code = options->code_of(op);
    if (op == options->forced) {
        call.variant = options->variant;
        call.timed = true;
    }
    enum status status = code->prepare(&call, &p->kernel_plans->plan[kernel_plan]);
    free(storage);
    return status;
}

/* Prepares those that may run in parallel, then the others. */
static enum status kernel_plans_prepare_first(struct preparation *p, const int *first, int count)
{
    enum status status = OK;
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < count; i++) {
        if (!p->kernel_plans->options.code_of(p->kernel_plans->op[first[i]])->prepare_together) continue;
        enum status one = kernel_plan_prepare(p, first[i]);
#pragma omp critical
        if (one != OK) status = one;
    }
    for (int i = 0; status == OK && i < count; i++)
        if (!p->kernel_plans->options.code_of(p->kernel_plans->op[first[i]])->prepare_together)
            status = kernel_plan_prepare(p, first[i]);
    return status;
}

static enum status kernel_plans_prepare_all(struct preparation *p)
{
    int *first = memory_new((size_t)p->kernel_plans->count, sizeof *first);
    int count = 0;
    for (int e = 0; e < p->kernel_plans->count; e++) {
        p->equal[e] = -1;
        if (kernel_plan_is_first(p, e)) first[count++] = e;
    }
    /* A device's driver or library may hang. */
    const struct device *device = p->kernel_plans->options.device;
    struct watch *watch = NULL;
    if (device) watch = watch_begin(WATCH_SECONDS, "choosing algorithms for %d shapes", count);
    enum status status = kernel_plans_prepare_first(p, first, count);
    watch_end(watch);
    for (int e = 0; e < p->kernel_plans->count; e++)
        if (p->equal[e] >= 0) p->kernel_plans->plan[e] = p->kernel_plans->plan[p->equal[e]];
    free(first);
    return status;
}

static enum status codes_check(const struct program *program, const struct kernel_options *options)
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
    int workspace = operand(at, OPERAND_WORKSPACE, 0);
    if (workspace >= 0) {
        struct value *value = &program->values[workspace];
        value->shape = shape_vector(bytes);
        value->bytes = bytes;
    } else if (bytes > 0) {
        struct value value = {.home = HOME_ARENA, .kind = KIND_WORKSPACE, .dtype = U8, .node = at->node,
                              .index = -1, .shape = shape_vector(bytes)};
        workspace = build_value(program, value, text_format("%s workspace", at->name));
        operand_set(at, OPERAND_WORKSPACE, 0, workspace);
        instruction_link(program, at);
    }
}

void kernel_plans_set_workspaces(const struct kernel_plans *kernel_plans, struct program *program)
{
    struct call_storage *storage = memory_new(1, sizeof *storage);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!at->op) continue;
        const struct op_code *code = kernel_plans->options.code_of(at->op);
        struct call call = program_call(program, i, storage);
        call_apply_options(&call, &kernel_plans->options);
        if (at->kernel_plan >= 0) call.kernel_plan = kernel_plans->plan[at->kernel_plan];
        workspace_set(program, i, code->workspace ? (int64_t)code->workspace(&call) : 0);
    }
    free(storage);
}

enum status kernel_plans_prepare(struct program *program, const struct kernel_options *options,
                                 struct kernel_plans *kernel_plans)
{
    TRY(codes_check(program, options));
    struct kernel_plans made = {.count = program->kernel_plan_count, .options = *options};
    made.plan = memory_new((size_t)made.count, sizeof *made.plan);
    made.op = memory_new((size_t)made.count, sizeof *made.op);
    struct preparation *p = memory_new(1, sizeof *p);
    *p = (struct preparation){.program = program, .kernel_plans = &made, .uses = kernel_plan_uses(program)};
    p->equal = memory_new((size_t)made.count, sizeof *p->equal);
    enum status status = kernel_plans_prepare_all(p);
    if (status == OK) kernel_plans_set_workspaces(&made, program);
    free(p->uses);
    free(p->equal);
    free(p);
    if (status != OK) kernel_plans_release(&made);
    else *kernel_plans = made;
    return status;
}

static bool released_before(const struct kernel_plans *kernel_plans, int kernel_plan)
{
    for (int e = 0; e < kernel_plan; e++)
        if (kernel_plans->plan[e] == kernel_plans->plan[kernel_plan]) return true;
    return false;
}

void kernel_plans_release(struct kernel_plans *kernel_plans)
{
    for (int e = 0; e < kernel_plans->count; e++) {
        const struct op *op = kernel_plans->op[e];
        const struct op_code *code = op ? kernel_plans->options.code_of(op) : NULL;
        if (!kernel_plans->plan[e] || released_before(kernel_plans, e)) continue;
        if (code->release) code->release(kernel_plans->plan[e]);
    }
    free(kernel_plans->plan);
    free(kernel_plans->op);
    *kernel_plans = (struct kernel_plans){0};
}
