/* kernel_plans.c: has ops prepare kernel plans for the shapes of a program, and allocates the workspaces that
 * these need. */
#include "compile/ir/kernel_plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/watch.h"
#include "compile/ir/call_equal.h"
#include "compile/ir/program_parts.h"
#include "kernels/conv/conv.h"

/* Instructions of a program with the same number and the same phase are the same call, of each micro-batch;
 * one that runs forward again has forward's plan. */
static int plan_slot(const struct instruction *at)
{
    enum phase phase = at->phase == PHASE_RECOMPUTE ? PHASE_FORWARD : at->phase;
    return at->kernel_plan < 0 || !at->op ? -1 : at->kernel_plan * PHASE_COUNT + (int)phase;
}

struct kernel_plan *kernel_plans_of(const struct kernel_plans *kernel_plans, const struct instruction *at)
{
    int slot = plan_slot(at);
    return slot < 0 ? NULL : kernel_plans->plan[slot];
}

struct preparation {
    struct program *program;
    struct kernel_plans *kernel_plans;
    int *first;                  /* by slot: its first instruction; -1: it needs no plan */
    int *equal;                  /* by slot: an earlier one whose plan is shared; -1: none */
};

/* An earlier slot of the same phase, op, settings, shapes and types; -1. Settings with a pointer compare
 * unequal, which only costs another kernel plan. */
static int slot_equal(const struct preparation *p, int slot)
{
    struct call_storage storage, other_storage;
    const struct call call = program_call(p->program, p->first[slot], &storage);
    for (int e = slot % PHASE_COUNT; e < slot; e += PHASE_COUNT) {
        if (p->first[e] < 0 || p->equal[e] >= 0) continue;
        if (p->program->instructions[p->first[e]].op != call.op) continue;
        const struct call other = program_call(p->program, p->first[e], &other_storage);
        size_t bytes = call.op->settings_size;
        if (bytes > 0 && memcmp(other.settings, call.settings, bytes) != 0) continue;
        if (call_equal(&call, &other)) return e;
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

static const struct op_code *code_of_slot(const struct preparation *p, int slot)
{
    return p->kernel_plans->options.code_of(p->program->instructions[p->first[slot]].op);
}

static enum status slot_prepare(const struct preparation *p, int slot)
{
    struct call_storage storage;
    const struct kernel_options *options = &p->kernel_plans->options;
    struct call call = program_call(p->program, p->first[slot], &storage);
    call_apply_options(&call, options);
    if (call.op == options->forced) {
        call.variant = options->variant;
        call.timed = true;
    }
    return kernel_plan_make(code_of_slot(p, slot), &call, &p->kernel_plans->plan[slot]);
}

/* Prepares those that may run in parallel, then the others. */
static enum status slots_prepare(struct preparation *p, const int *slots, int count)
{
    enum status status = OK;
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < count; i++) {
        if (!code_of_slot(p, slots[i])->plans_together) continue;
        enum status one = slot_prepare(p, slots[i]);
#pragma omp critical
        if (one != OK) status = one;
    }
    for (int i = 0; status == OK && i < count; i++)
        if (!code_of_slot(p, slots[i])->plans_together) status = slot_prepare(p, slots[i]);
    return status;
}

/* Finds the first instruction of each slot whose code has algorithms. */
static void slots_find(struct preparation *p)
{
    for (int e = 0; e < p->kernel_plans->count; e++) p->first[e] = p->equal[e] = -1;
    for (int i = 0; i < p->program->count; i++) {
        const struct instruction *at = &p->program->instructions[i];
        int slot = plan_slot(at);
        if (slot < 0 || at->phase == PHASE_UPDATE || p->first[slot] >= 0) continue;
        if (p->kernel_plans->options.code_of(at->op)->algorithms) p->first[slot] = i;
    }
}

static enum status kernel_plans_prepare_all(struct preparation *p)
{
    int slots = p->kernel_plans->count, *own = memory_new((size_t)slots, sizeof *own), count = 0;
    slots_find(p);
    for (int e = 0; e < slots; e++) {
        if (p->first[e] < 0) continue;
        p->equal[e] = slot_equal(p, e);
        if (p->equal[e] < 0) own[count++] = e;
    }
    /* A device's driver or library may hang. */
    const struct device *device = p->kernel_plans->options.device;
    struct watch *watch = NULL;
    if (device) watch = watch_begin(WATCH_SECONDS, "choosing algorithms for %d shapes", count);
    enum status status = slots_prepare(p, own, count);
    watch_end(watch);
    for (int e = 0; e < slots; e++)
        if (p->equal[e] >= 0) p->kernel_plans->plan[e] = p->kernel_plans->plan[p->equal[e]];
    free(own);
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
        call.kernel_plan = kernel_plans_of(kernel_plans, at);
        workspace_set(program, i, (int64_t)op_code_workspace(code, &call));
    }
    free(storage);
}

enum status kernel_plans_prepare(struct program *program, const struct kernel_options *options,
                                 struct kernel_plans *kernel_plans)
{
    TRY(codes_check(program, options));
    struct kernel_plans made = {.count = program->kernel_plan_count * PHASE_COUNT, .options = *options};
    made.plan = memory_new((size_t)made.count, sizeof *made.plan);
    struct preparation p = {.program = program, .kernel_plans = &made};
    p.first = memory_new((size_t)made.count, sizeof *p.first);
    p.equal = memory_new((size_t)made.count, sizeof *p.equal);
    enum status status = kernel_plans_prepare_all(&p);
    if (status == OK) kernel_plans_set_workspaces(&made, program);
    free(p.first);
    free(p.equal);
    if (status != OK) kernel_plans_release(&made);
    else *kernel_plans = made;
    return status;
}

void kernel_plans_keep_weights(struct kernel_plans *kernel_plans)
{
    for (int e = 0; e < kernel_plans->count; e++)
        if (kernel_plans->plan[e]) conv_cpu_keep_weights(kernel_plans->plan[e]);
}

/* A plan that several slots share is freed with the first. */
void kernel_plans_release(struct kernel_plans *kernel_plans)
{
    for (int e = 0; e < kernel_plans->count; e++) {
        struct kernel_plan *plan = kernel_plans->plan[e];
        for (int later = e + 1; plan && later < kernel_plans->count; later++)
            if (kernel_plans->plan[later] == plan) kernel_plans->plan[later] = NULL;
        kernel_plan_free(plan);
    }
    free(kernel_plans->plan);
    *kernel_plans = (struct kernel_plans){0};
}
