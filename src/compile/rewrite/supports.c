#include "compile/rewrite/supports.h"

const struct op_code *supports_code(code_lookup *code_of, const struct instruction *at)
{
    static const struct op_code none = {.forward = NULL};
    const struct op_code *code = at->op ? code_of(at->op) : NULL;
    return code ? code : &none;
}

static struct shape shape_at(const struct match *m, int value) { return m->program->values[value].shape; }

static bool adds_gradient(const struct match *m, const struct instruction *at, const struct op_code *code)
{
    if (at->phase == PHASE_BACKWARD_DATA) return code->joins_gradients;
    return code->adds_first_channels && operand_count(at, OPERAND_X) == 1 &&
           operand(at, OPERAND_D_Y_ADDEND, 0) < 0 && shape_at(m, operand_x(at, 0)).c % PACK_CHANNELS == 0;
}

static bool reads_sums(const struct match *m, const struct instruction *at, const struct op_code *code)
{
    struct shape x = shape_at(m, operand_x(at, 0)), y = shape_at(m, operand_y(at));
    bool gram = m->rule->adds.epilogue == EPILOGUE_GRAM;
    return code->takes_y_sums && (code->takes_gram || !gram) && x.c * shape_count(y) == y.c * shape_count(x);
}

static bool writes_sums(const struct match *m, const struct instruction *at, const struct op_code *code)
{
    bool gram = m->rule->adds.epilogue == EPILOGUE_GRAM;
    return code->gives_y_sums && code->gives_y_sums(at->settings) &&
           (!gram || (code->gives_gram && code->gives_gram(shape_at(m, operand_y(at)).c)));
}

static bool writes_products(const struct match *m, int i, const struct op_code *code)
{
    struct call_storage storage;
    if (!code->gives_products) return false;
    struct call call = program_call(m->program, i, &storage);
    return code->gives_products(&call);
}

bool supports(const struct match *m, int i, enum operand_role role)
{
    const struct instruction *at = &m->program->instructions[i];
    const struct op_code *code = supports_code(m->options->kernels->code_of, at);
    switch (role) {
    case OPERAND_D_Y_ADDEND: return code->adds_gradients;
    case OPERAND_D_X_ADDEND: return adds_gradient(m, at, code);
    case OPERAND_X_MOMENTS: return code->takes_sums;
    case OPERAND_Y_MOMENTS: return code->gives_sums;
    case OPERAND_X_SUMS: return reads_sums(m, at, code);
    case OPERAND_Y_SUMS: return writes_sums(m, at, code);
    case OPERAND_D_X_SUMS: return code->sums_gradient;
    case OPERAND_D_Y_SUMS: return code->takes_joined;
    case OPERAND_X_PRODUCTS: return writes_products(m, i, code);
    case OPERAND_Y_PRODUCTS: return code->takes_products && code->takes_products(at->settings);
    case OPERAND_MASK: return code->keeps_mask;
    case OPERAND_D_PARAM: return code->spares_bias;
    case OPERAND_ROLES: return code->applies_relu;
    case OPERAND_X:
    case OPERAND_D_X:
    case OPERAND_PARAM:
    case OPERAND_Y:
    case OPERAND_D_Y:
    case OPERAND_SAVED:
    case OPERAND_Y_RECOMPUTED:
    case OPERAND_RANK_SUMS:
    case OPERAND_WORKSPACE: break;
    }
    return false;
}

struct shape supports_part(const struct match *m, struct shape shape)
{
    const struct op_code *first = supports_code(m->options->kernels->code_of, m->first);
    const struct op_code *second = supports_code(m->options->kernels->code_of, m->second);
    if (second->joins_gradients && first->picks_gradient)
        return first->picks_gradient(m->first->settings, shape);
    if (m->first->op->flat_gradient && second->adds_flat) shape.h = shape.w = 1;
    return shape;
}

bool supports_op(const struct match *m, const struct op *op, const void *settings, const struct value *x)
{
    const struct op_code *code = m->options->kernels->code_of(op);
    struct tensor tensor = {.dtype = x->dtype, .shape = x->shape};
    struct call call = {.settings = settings, .training = true, .x_count = 1, .x = &tensor,
                        .device = m->options->kernels->device};
    return code && (!code->supports || code->supports(&call));
}
