/* fuse_data_and_weight_gradients.c: makes one instruction of the data and weight gradients of an op
 * whose code computes both in one kernel, which so reads their common inputs once.
 *
 * If only a depthwise convolution reads the output of a folded batch norm (conv_batchnorm.c) with relu6,
 * relu6 moves into it. Forward, the op clips its input, which a product wrote after a relu; backward, it
 * passes its gradient through relu6 and computes the gradient's sums. Batch norm then needs no sweep of its
 * own in either direction.
 *
 * No rule (rule.h) says this: neither of the two gradients reads what the other writes, and relu6 concerns
 * all instructions that read the batch norm's output. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"

struct merging {
    struct program *program;
    const struct kernel_options *kernels;
    struct value_uses *uses;     /* by value, before anything is merged */
    bool *removed;               /* by instruction */
};

/* True if an op adds the gradient to another one: that may move into the op that computes the later one. */
static bool is_summand(const struct merging *m, int gradient)
{
    int reader = gradient < 0 ? NO_USE : m->uses[gradient].reader;
    return reader >= 0 && operand(&m->program->instructions[reader], OPERAND_D_Y_ADDEND, 0) >= 0;
}

/* The instruction of the data gradient for weight gradient i; -1. */
static int data_gradient_of(const struct merging *m, int i)
{
    const struct instruction *weights = &m->program->instructions[i];
    for (int j = i + 1; j < m->program->count; j++) {
        const struct instruction *at = &m->program->instructions[j];
        if (at->op != weights->op || at->phase != PHASE_BACKWARD_DATA || operand_y(at) != operand_y(weights))
            continue;
        bool same = operand(at, OPERAND_D_Y, 0) == operand(weights, OPERAND_D_Y, 0);
        bool alone = operand(at, OPERAND_D_X_ADDEND, 0) < 0 && !is_summand(m, operand(at, OPERAND_D_X, 0));
        return same && alone ? j : -1;
    }
    return -1;
}

/* The code of an instruction's op, and its call; NULL: there is no code. */
static const struct op_code *code_and_call(const struct merging *m, int i, struct call_storage *storage,
                                           struct call *call)
{
    const struct op *op = m->program->instructions[i].op;
    const struct op_code *code = op ? m->kernels->code_of(op) : NULL;
    if (!code) return NULL;
    *call = program_call(m->program, i, storage);
    call->device = m->kernels->device;
    return code;
}

static bool can_merge(const struct merging *m, int i)
{
    struct call_storage storage;
    struct call call;
    if (m->program->instructions[i].phase != PHASE_BACKWARD_PARAMS) return false;
    const struct op_code *code = code_and_call(m, i, &storage, &call);
    if (!code || !code->backward) return false;
    call.phase = PHASE_BACKWARD;
    call.d_x[0] = call.x[0];
    return op_code_supports(code, &call);
}

/* True if only the instructions `own` and `other`, and forward calls of own's node, read `value`. */
static bool is_read_by(const struct merging *m, int value, int own, int other)
{
    int node = m->program->instructions[own].node;
    for (int i = 0; i < m->program->count; i++) {
        const struct instruction *at = &m->program->instructions[i];
        bool forward = at->phase == PHASE_FORWARD && at->node == node;
        if (i != own && i != other && !forward && instruction_reads(at, value)) return false;
    }
    return true;
}

/* The settings of an op that ends in relu6, as text, with relu in its place; NULL: it does not. */
static char *settings_with_relu(const struct instruction *at)
{
    struct text text = {0};
    op_settings_print(at->op, at->settings, &text);
    char *relu = text.data ? strstr(text.data, "activation=relu6") : NULL;
    if (!relu) {
        text_free(&text);
        return NULL;
    }
    char *six = relu + strlen("activation=relu");
    memmove(six, six + 1, strlen(six));
    return text.data;
}

/* True if code supports instruction i with sums in this role, and these epilogues. */
static bool supports_sums(const struct merging *m, int i, enum operand_role sums, int64_t channels,
                          const struct epilogue *epilogues, int count)
{
    struct call_storage storage;
    struct call call;
    const struct op_code *code = code_and_call(m, i, &storage, &call);
    if (!code) return false;
    *call_tensor(&call, sums, 0) =
        (struct tensor){.dtype = F32, .shape = {.rank = 2, .dim = {1, channels, 1, 1}}};
    for (int k = 0; k < count; k++) call.epilogues[call.epilogue_count++] = epilogues[k];
    return op_code_supports(code, &call);
}

/* True if backward of a batch norm i with relu6 can do without what another op then does, with sums. */
static bool can_leave_relu6(const struct merging *m, int i, int64_t channels)
{
    const struct instruction *at = &m->program->instructions[i];
    char *settings = settings_with_relu(at);
    bool relu6 = settings && operand_count(at, OPERAND_X) == 1;
    free(settings);
    return relu6 && supports_sums(m, i, OPERAND_D_Y_SUMS, channels, NULL, 0);
}

static bool can_take_relu6(const struct merging *m, int i, int64_t channels)
{
    static const struct epilogue epilogues[] = {{EPILOGUE_X_RELU6, OPERAND_ROLES, 0},
                                                {EPILOGUE_D_RELU6, OPERAND_ROLES, 0},
                                                {EPILOGUE_SUMS, OPERAND_D_X_SUMS, 0}};
    return supports_sums(m, i, OPERAND_D_X_SUMS, channels, epilogues, 3);
}

static int clipped_sums_new(struct program *program, const struct instruction *taker)
{
    const struct value *y = &program->values[operand_y(taker)];
    return build_sums(program, taker->node, 1, y->shape.c, text_format("d %s sums", y->name));
}

/* Forward calls that read the value clip it, and not those that write it. */
static void clip_later(struct merging *m, int value)
{
    const void *settings = NULL;
    for (int i = 0; i < m->program->count; i++) {
        struct instruction *at = &m->program->instructions[i];
        if (at->phase != PHASE_FORWARD) continue;
        if (operand_y(at) == value) {
            if (!settings) settings = build_settings(m->program, at->op, settings_with_relu(at));
            at->settings = settings;
        } else if (instruction_reads(at, value)) {
            epilogue_add(at, EPILOGUE_X_RELU6, OPERAND_ROLES, -1);
        }
    }
}

/* Moves relu6 from the batch norm in front into instruction i, whose data gradient `data` writes. */
static void take_relu6(struct merging *m, int i, int data)
{
    struct instruction *giver = &m->program->instructions[i];
    int y = operand_x(giver, 0), d_y = operand(giver, OPERAND_D_X, 0);
    if (m->uses[d_y].writer != data || m->uses[d_y].reader < 0 || m->uses[y].writer < 0) return;
    struct instruction *taker = &m->program->instructions[m->uses[d_y].reader];
    if (taker->phase != PHASE_BACKWARD || operand_y(taker) != y) return;
    if (operand(taker, OPERAND_D_Y, 0) != d_y || operand(taker, OPERAND_D_Y_ADDEND, 0) >= 0) return;
    if (operand(taker, OPERAND_D_Y_SUMS, 0) >= 0) return;
    int64_t channels = m->program->values[y].shape.c;
    if (!can_leave_relu6(m, m->uses[d_y].reader, channels) || !can_take_relu6(m, i, channels)) return;
    if (!is_read_by(m, y, i, m->uses[d_y].reader)) return;
    int sums = clipped_sums_new(m->program, taker);
    clip_later(m, y);
    epilogue_add(giver, EPILOGUE_X_RELU6, OPERAND_ROLES, -1);
    epilogue_add(giver, EPILOGUE_D_RELU6, OPERAND_ROLES, -1);
    epilogue_add(giver, EPILOGUE_SUMS, OPERAND_D_X_SUMS, sums);
    operand_set(taker, OPERAND_D_Y_SUMS, 0, sums);
    instruction_link(m->program, taker);
}

static void merge_at(struct merging *m, int i)
{
    int j = can_merge(m, i) ? data_gradient_of(m, i) : -1;
    if (j < 0) return;
    struct instruction *at = &m->program->instructions[i];
    const struct instruction *data = &m->program->instructions[j];
    free(at->name);
    at->name = instruction_name(m->program, at->node, PHASE_BACKWARD);
    at->phase = PHASE_BACKWARD;
    FOR_OPERANDS(o, data)
        if (o->role == OPERAND_D_X) operand_set(at, OPERAND_D_X, (int)o->index, o->value);
    m->removed[j] = true;
    take_relu6(m, i, j);
    instruction_link(m->program, at);
}

void fuse_data_and_weight_gradients(struct program *program, const struct kernel_options *kernels)
{
    struct merging m = {.program = program, .kernels = kernels, .uses = value_uses(program),
                        .removed = memory_new((size_t)program->count, sizeof(bool))};
    for (int i = 0; i < program->count; i++) merge_at(&m, i);
    build_remove(program, m.removed);
    free(m.uses);
    free(m.removed);
}
