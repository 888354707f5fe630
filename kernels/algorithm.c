#include "kernels/algorithm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static enum status reference_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct op_code *reference = call->op->reference;
    (void)plan;
    switch (call->phase) {
    case PHASE_FORWARD: return reference->forward(call);
    case PHASE_BACKWARD: return reference->backward(call);
    case PHASE_BACKWARD_DATA: return reference->backward_data(call);
    case PHASE_BACKWARD_PARAMS: return reference->backward_params(call);
    case PHASE_RECOMPUTE: return reference->recompute(call);
    case PHASE_UPDATE: return reference->update(call);
    case PHASE_COUNT: break;
    }
    return FAILED;
}

const struct algorithm algorithm_reference = {.name = "reference", .run = reference_run};

static struct kernel_plan *plan_make(const struct algorithm *algorithm, const struct call *call,
                                     const char *name)
{
    if (algorithm->supports && !algorithm->supports(call)) return NULL;
    struct kernel_plan *plan = memory_new(1, sizeof *plan);
    plan->algorithm = algorithm;
    snprintf(plan->name, sizeof plan->name, "%s", name);
    if (!algorithm->make || algorithm->make(call, plan)) return plan;
    free(plan);
    return NULL;
}

struct kernel_plan *algorithm_plan(const struct algorithm *const *algorithms, const struct call *call,
                                   const char *name)
{
    for (; *algorithms; algorithms++)
        if (op_variant_is(name, (*algorithms)->name)) return plan_make(*algorithms, call, name);
    return NULL;
}

/* The first that begins with call->variant. */
static struct kernel_plan *first_plan(const struct algorithm *const *algorithms, const struct call *call)
{
    struct kernel_plan *plan = NULL;
    for (; *algorithms && !plan; algorithms++)
        if (!call->variant || op_variant_is((*algorithms)->name, call->variant))
            plan = plan_make(*algorithms, call, (*algorithms)->name);
    return plan;
}

enum status kernel_plan_make(const struct op_code *code, const struct call *call, struct kernel_plan **made)
{
    if (code->choose) return code->choose(code, call, made);
    struct call any = *call;
    any.variant = NULL;
    *made = first_plan(code->algorithms, call);
    if (!*made && call->variant) *made = first_plan(code->algorithms, &any);
    return *made ? OK : fail(FAILED, "%s: no algorithm supports it", call->op->name);
}

void kernel_plan_free(struct kernel_plan *plan)
{
    if (plan && plan->algorithm && plan->algorithm->release) plan->algorithm->release(plan);
    else if (plan) free(plan->state);
    free(plan);
}

struct kernel_plan *kernel_plan_bound(size_t workspace)
{
    struct kernel_plan *plan = memory_new(1, sizeof *plan);
    plan->workspace = workspace;
    return plan;
}

enum status kernel_plan_run(const struct call *call)
{
    if (call->phase == PHASE_BACKWARD_DATA && !call->d_x[0].data) return OK;
    return call->kernel_plan->algorithm->run(call, call->kernel_plan);
}

size_t op_code_workspace(const struct op_code *code, const struct call *call)
{
    if (code->workspace) return code->workspace(call);
    return call->kernel_plan ? call->kernel_plan->workspace : 0;
}

const char *algorithm_lacks(const struct op_code *code, const char *variant)
{
    for (const struct algorithm *const *at = code->algorithms; at && *at; at++)
        if (op_variant_is(variant, (*at)->name) && (*at)->lacks) return (*at)->lacks();
    return NULL;
}

/* ---- The call as a problem ---- */

static bool is_asked(const struct call *call, enum operand_role role, int index)
{
    unsigned reads = call->op->reads ? call->op->reads(call->settings, call->phase) : 0;
    if (role == OPERAND_X) return reads & (index == 0 ? READS_X | READS_FIRST_X : READS_X);
    if (role == OPERAND_Y) return reads & READS_Y;
    if (role == OPERAND_PARAM) return reads & READS_PARAMS;
    return role == OPERAND_SAVED ? reads & READS_SAVED : true;
}

/* The bits 1, read, and 2, written. */
static unsigned access_of(const struct call *call, enum operand_role role, int index)
{
    bool forward = call->phase == PHASE_FORWARD || call->phase == PHASE_RECOMPUTE;
    enum operand_access access = forward ? operand_rows[role].forward : operand_rows[role].backward;
    switch (access) {
    case CALL_SHAPE: return 0;
    case CALL_READ: return 1;
    case CALL_SHARED: return call->ranks > 0 ? 1 : 2;
    case CALL_WRITE:
    case CALL_KEPT: return 2;
    case CALL_ASKED: return is_asked(call, role, index);
    }
    return 0;
}

struct listing {
    const struct call *call;
    struct call_tensor *to;
    int count;
};

static void list_add(struct listing *l, enum operand_role role, struct tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        unsigned access = tensors[i].shape.rank > 0 ? access_of(l->call, role, i) : 0;
        if (access) l->to[l->count++] = (struct call_tensor){role, i, access & 1, &tensors[i]};
    }
}

int call_tensors(struct call *call, struct call_tensor tensors[CALL_TENSORS])
{
    struct listing l = {.call = call, .to = tensors};
    list_add(&l, OPERAND_X, call->x, call->x_count);
    list_add(&l, OPERAND_D_X, call->d_x, call->x_count);
    list_add(&l, OPERAND_PARAM, call->params, call->param_count);
    list_add(&l, OPERAND_D_PARAM, call->d_params, call->param_count);
    list_add(&l, OPERAND_Y, &call->y, 1);
    list_add(&l, OPERAND_D_Y, &call->d_y, 1);
    list_add(&l, OPERAND_SAVED, call->saved, call->saved_count);
    for (int i = 0; i < call->operand_count; i++)
        list_add(&l, call->operands[i].role, &call->operands[i].tensor, 1);
    return l.count;
}

void call_print(const struct call *call, struct text *out)
{
    struct call copy = *call;
    struct call_tensor tensors[CALL_TENSORS];
    int count = call_tensors(&copy, tensors);
    struct text settings = {0};
    op_settings_print(call->op, call->settings, &settings);
    for (char *c = settings.data; c && *c; c++)
        if (*c == '=') *c = ':';
    text_add(out, "%s %s%s%s%s (", phase_words[call->phase], call->op->name,
             settings.data ? settings.data : "", call->tf32 ? " tf32" : "",
             call->deterministic ? " deterministic" : "");
    text_free(&settings);
    for (int i = 0; i < count; i++) {
        const struct shape *shape = &tensors[i].tensor->shape;
        text_add(out, "%s%s %s[", i ? ", " : "", operand_words[tensors[i].role],
                 dtype_table[tensors[i].tensor->dtype].name);
        for (int d = 0; d < shape->rank; d++) text_add(out, "%s%lld", d ? "x" : "", (long long)shape->dim[d]);
        text_add(out, "]");
    }
    text_add(out, ")");
    for (int i = 0; i < call->epilogue_count; i++)
        text_add(out, "%s %s", i ? "," : " then", epilogue_words[call->epilogues[i].kind]);
}
