/* autocast.c: decides every dtype by the classes of the ops, and inserts casts where an op needs another type
 * than its input has.
 *
 * Runs on the forward instructions, before the backward pass exists: casts are then differentiated like any
 * op. Applying it twice changes nothing. */
#include "compile/rewrite/rewrites.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"

/* The inputs whose type is chosen: the others of a loss of pixels stay as they are. */
static int typed_inputs(const struct instruction *at)
{
    return at->op->labels_pixels ? 1 : operand_count(at, OPERAND_X);
}

/* The type of floating inputs that the op requires. Inputs of a FOLLOW op that differ meet in fp32, the
 * wider. */
static enum dtype input_dtype(const struct program *program, const struct instruction *at)
{
    switch (at->op->precision) {
    case CLASS_LOW: return program->storage;
    case CLASS_FULL: return F32;
    case CLASS_FOLLOW: break;
    }
    enum dtype first = program->values[operand_x(at, 0)].dtype;
    for (int i = 1; i < typed_inputs(at); i++) {
        enum dtype other = program->values[operand_x(at, i)].dtype;
        if (dtype_is_float(other) && other != first) return F32;
    }
    return first;
}

/* One cast of a value serves all its readers. */
struct casts {
    int *to[DTYPE_COUNT];    /* by value: its cast, -1 if there is none yet */
    int count;
};

static int cast_of(struct program *program, struct casts *casts, int value, enum dtype dtype, int micro_batch)
{
    int *to = casts->to[dtype];
    if (value >= casts->count) return build_cast(program, value, dtype, micro_batch);
    if (to[value] < 0) to[value] = build_cast(program, value, dtype, micro_batch);
    return to[value];
}

static void value_set_dtype(struct value *value, enum dtype dtype)
{
    value->dtype = dtype;
    value_set_bytes(value);
}

static void autocast_forward(struct program *program, struct instruction *at, struct casts *casts)
{
    enum dtype want = input_dtype(program, at);
    for (int i = 0; i < typed_inputs(at); i++) {
        int x = operand_x(at, i);
        enum dtype have = program->values[x].dtype;
        if (!dtype_is_float(have) || have == want) continue;
        operand_set(at, OPERAND_X, i, cast_of(program, casts, x, want, at->micro_batch));
    }
    enum dtype out = at->op->output_dtype ? at->op->output_dtype(at->settings, want) : want;
    value_set_dtype(&program->values[operand_y(at)], out);
}

void autocast(struct program *program)
{
    struct instruction *old = program->instructions;
    int count = program->count;
    struct casts casts = {.count = program->value_count};
    for (int d = 0; d < DTYPE_COUNT; d++) {
        casts.to[d] = memory_new((size_t)casts.count, sizeof(int));
        for (int v = 0; v < casts.count; v++) casts.to[d][v] = -1;
    }
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < count; i++) {
        if (old[i].op && old[i].phase == PHASE_FORWARD) autocast_forward(program, &old[i], &casts);
        build_push(program, old[i]);
    }
    for (int d = 0; d < DTYPE_COUNT; d++) free(casts.to[d]);
    free(old);
}
