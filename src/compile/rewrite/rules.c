/* rules.c: the rules by which two instructions are fused (rule.h), in a table at the end; before it, the
 * functions that its rows name, which make the change. */
#include "compile/rewrite/rule.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/conv/conv.h"
#include "kernels/elementwise/activation.h"
#include "kernels/norm/batchnorm_maxpool.h"

enum { PACK_CHANNELS = 8 };  /* that are read at once */

static struct value *value_at(const struct match *m, int value) { return &m->program->values[value]; }

/* The first writes what the second one wrote. */
static bool take_result(struct match *m)
{
    int y = operand_y(m->second);
    assert(value_at(m, y)->dtype == value_at(m, m->value)->dtype);
    operand_set(m->first, m->rule->first.role, 0, y);
    m->removed = m->second;
    return true;
}

/* Settings of `op` from this text and a batch norm's; NULL if the op refuses the inputs of `at`, with that of
 * the first instruction as the first one. Frees `text`. */
static const void *folded_settings(const struct match *m, const struct op *op, const struct instruction *at,
                                   const struct batchnorm *norm, char *text)
{
    struct shape y, x[OP_MAX_INPUTS];
    struct reason reason;
    char *own = batchnorm_folded_settings(norm);
    const void *settings = build_settings(m->program, op, text_format("%s %s", text, own));
    free(own);
    free(text);
    int count = operand_count(at, OPERAND_X);
    for (int k = 0; k < count; k++) x[k] = value_at(m, operand_x(k == 0 ? m->first : at, k))->shape;
    return op->shape(settings, count, x, &y, &reason) ? settings : NULL;
}

/* The second, as a call of `op`, reads what the first one reads. */
static void take_input(struct match *m, const struct op *op, const void *settings)
{
    m->second->op = op;
    m->second->settings = settings;
    operand_set(m->second, OPERAND_X, 0, operand_x(m->first, 0));
    m->removed = m->first;
}

/* The linear layer gets the factors as its last parameter; neither adds anything yet. */
static bool fold_scale(struct match *m)
{
    bool alone = m->first->epilogue_count == 0 && m->second->epilogue_count == 0;
    if (!m->program->training || !alone) return false;
    int factors = operand(m->second, OPERAND_PARAM, 0), params = operand_count(m->first, OPERAND_PARAM);
    take_input(m, build_op("linear_scale"), m->first->settings);
    for (int i = 0; i < params; i++)
        operand_set(m->second, OPERAND_PARAM, i, operand(m->first, OPERAND_PARAM, i));
    operand_set(m->second, OPERAND_PARAM, params, factors);
    return true;
}

/* The first is a convolution, whose weight becomes the last parameter. */
static bool take_conv(struct match *m, const struct op *op, const void *settings)
{
    take_input(m, op, settings);
    operand_set(m->second, OPERAND_PARAM, operand_count(m->second, OPERAND_PARAM),
                operand(m->first, OPERAND_PARAM, 0));
    return true;
}

/* Backward recomputes what an activation needs to know. */
static bool take_activation(struct match *m)
{
    if (!m->first->op->activates) return false;
    epilogue_add(m->first, m->rule->adds.epilogue, OPERAND_ROLES, -1);
    if (m->rule->adds.epilogue == EPILOGUE_LEAKY_RELU)
        m->first->epilogues[m->first->epilogue_count - 1].argument =
            ((const struct leaky_relu *)m->second->settings)->slope;
    return take_result(m);
}

/* The only reader of the value becomes an epilogue of the instruction that it is added to. */
static bool is_activated(const struct match *m, int value)
{
    for (int i = m->second_number; m->uses[value].reads == 1 && i < m->program->count; i++) {
        const struct instruction *at = &m->program->instructions[i];
        if (at->op && operand_x(at, 0) == value)
            return strcmp(at->op->name, "relu") == 0 || strcmp(at->op->name, "leaky_relu") == 0;
    }
    return false;
}

/* The other summand is there before, and becomes the second input. */
static bool take_residual(struct match *m)
{
    int other = operand_x(m->second, operand_x(m->second, 0) == m->value);
    if (!m->first->op->activates || operand_count(m->first, OPERAND_X) > 1 ||
        operand_count(m->second, OPERAND_X) != 2 || other == m->value || m->first->epilogue_count > 0 ||
        m->uses[other].writer >= m->first_number || !is_activated(m, operand_y(m->second))) return false;
    operand_set(m->first, OPERAND_X, 1, other);
    return take_result(m);
}

/* The convolution is 1x1, may leave out pixels, and has a large result. */
static bool fold_conv_batchnorm(struct match *m)
{
    const struct op *op = build_op("conv_batchnorm");
    const struct batchnorm *norm = m->second->settings;
    struct shape y = value_at(m, m->value)->shape;
    bool large = shape_count(y) >= m->options->fold_least;
    struct conv_geometry g = conv_geometry(m->first->settings, value_at(m, operand_x(m->first, 0))->shape.c);
    bool plain = g.groups == 1 && operand_count(m->first, OPERAND_PARAM) == 1 && g.stride[0] == g.stride[1];
    for (int i = 0; i < 2; i++) plain = plain && g.kernel[i] == 1 && g.pad[i] == 0;
    if (!m->program->training || !plain || !large || !activation_folds(norm->activation)) return false;
    char *text = text_format("filters=%" PRId64 " stride=%" PRId64 " residual=%s", y.c, g.stride[0],
                             norm->residual ? "yes" : "no");
    const void *settings = folded_settings(m, op, m->second, norm, text);
    return settings && take_conv(m, op, settings);
}

/* The convolution reads both inputs of the concatenation; the op knows no bias's gradient. */
static bool fold_concat_conv(struct match *m)
{
    const struct op *op = build_op("concat_conv");
    bool large = shape_count(value_at(m, m->value)->shape) >= m->options->fold_least;
    bool known = !m->program->training || operand_count(m->second, OPERAND_PARAM) == 1;
    if (operand_count(m->first, OPERAND_X) != 2 || !large || !known) return false;
    struct text text = {0};
    op_settings_print(m->second->op, m->second->settings, &text);
    take_input(m, op, build_settings(m->program, op, text.data));
    operand_set(m->second, OPERAND_X, 1, operand_x(m->first, 1));
    return true;
}

/* conv_transpose_concat's settings from those of a large transposed convolution; NULL if it has others. */
static const void *transposed_settings(const struct match *m, bool first)
{
    const struct conv_transpose *up = m->first->settings;
    bool large = shape_count(value_at(m, m->value)->shape) >= m->options->fold_least;
    if (!large || up->output_pad > 0 || m->first->epilogue_count > 0) return NULL;
    struct text text = {0};
    op_settings_print(m->first->op, up, &text);
    if (first) text_add(&text, " first=yes");
    return build_settings(m->program, build_op("conv_transpose_concat"), text.data);
}

/* The concatenation, of two inputs, reads what the convolution reads, and its parameters. */
static bool fold_concat(struct match *m)
{
    bool first = operand_x(m->second, 0) == m->value;
    int other = operand_x(m->second, first);
    if (operand_count(m->second, OPERAND_X) != 2 || other == m->value) return false;
    const void *settings = transposed_settings(m, first);
    if (!settings) return false;
    take_input(m, build_op("conv_transpose_concat"), settings);
    operand_set(m->second, OPERAND_X, 1, other);
    for (int i = 0; i < operand_count(m->first, OPERAND_PARAM); i++)
        operand_set(m->second, OPERAND_PARAM, i, operand(m->first, OPERAND_PARAM, i));
    return true;
}

static bool take_kernels(struct match *m)
{
    const void *settings = transposed_settings(m, false);
    if (!settings) return false;
    m->first->op = build_op("conv_transpose_concat");
    m->first->settings = settings;
    return true;
}

static bool fold_pool(struct match *m)
{
    const struct op *op = build_op("batchnorm_maxpool");
    const struct batchnorm *norm = m->first->settings;
    const struct pool *pool = m->second->settings;
    int64_t stride = pool->stride ? pool->stride : pool->kernel;
    if (dtype_bytes(value_at(m, m->value)->dtype) != 2 || norm->residual || pool->dilation > 1 ||
        !activation_folds(norm->activation) || stride != 2 || (pool->kernel != 2 && pool->kernel != 3))
        return false;
    char *text = text_format("kernel=%" PRId64 " pad=%" PRId64 " ceil_mode=%s", pool->kernel, pool->pad,
                             pool->ceil_mode ? "yes" : "no");
    const void *settings = folded_settings(m, op, m->first, norm, text);
    if (!settings) return false;
    m->first->op = op;
    m->first->settings = settings;
    return take_result(m);
}

/* Backward knows relu, and no residual. */
static bool fold_batchnorm_conv(struct match *m)
{
    const struct op *op = build_op("batchnorm_conv");
    const struct value *x = value_at(m, m->value);
    const struct batchnorm *norm = m->first->settings;
    struct tensor read = {.dtype = x->dtype, .shape = x->shape};
    const struct call conv = {.settings = m->second->settings, .x = &read, .x_count = 1};
    bool large = shape_count(x->shape) >= m->options->fold_least;
    bool plain = norm->activation == ACTIVATION_RELU && !norm->residual;
    if (!m->program->training || !large || !plain || !conv_is_thin(&conv)) return false;
    int params = operand_count(m->first, OPERAND_PARAM), own = operand_count(m->second, OPERAND_PARAM);
    char *text = text_format("filters=%" PRId64 " bias=%s", value_at(m, operand_y(m->second))->shape.c,
                             own > 1 ? "yes" : "no");
    const void *settings = folded_settings(m, op, m->first, norm, text);
    if (!settings) return false;
    m->first->op = op;
    m->first->settings = settings;
    for (int k = 0; k < own; k++)
        operand_set(m->first, OPERAND_PARAM, params + k, operand(m->second, OPERAND_PARAM, k));
    return take_result(m);
}

/* Somebody else reads y, too. */
static bool pool_output(struct match *m)
{
    int number = operand(m->second, OPERAND_SAVED, 0);
    if (!pool_is_halves(m->second->settings) || number < 0 || m->uses[m->value].reads == 0) return false;
    epilogue_add(m->first, EPILOGUE_POOL, OPERAND_POOLED, operand_y(m->second));
    operand_set(m->first, OPERAND_NUMBER, 0, number);
    m->removed = m->second;
    return true;
}

static bool pool_gradient(struct match *m)
{
    if (!pool_is_halves(m->first->settings)) return false;
    operand_set(m->second, OPERAND_D_Y_ADDEND, 0, operand(m->first, OPERAND_D_Y, 0));
    operand_set(m->second, OPERAND_NUMBER, 0, operand(m->first, OPERAND_SAVED, 0));
    m->removed = m->first;
    return true;
}

/* True if a summand is the same at all pixels of an image, and nobody else reads it. */
static bool is_flat(const struct match *m, int value)
{
    const struct rule_use *use = &m->uses[value];
    if (use->writer < 0 || use->reads > 0) return false;
    const struct instruction *writer = &m->program->instructions[use->writer];
    return instruction_is_backward(writer) && writer->op && writer->op->flat_gradient;
}

static bool read_summands(struct match *m)
{
    int addend = is_flat(m, operand_x(m->first, 0)) ? 0 : 1;
    operand_set(m->second, OPERAND_D_Y, 0, operand_x(m->first, 1 - addend));
    operand_set(m->second, OPERAND_D_Y_ADDEND, 0, operand_x(m->first, addend));
    m->removed = m->first;
    return true;
}

/* A part of a gradient, so many pixels, says all: the first writes it, the second reads it. */
static bool write_part(struct match *m, int64_t h, int64_t w)
{
    struct value *value = value_at(m, m->value);
    struct shape x = value_at(m, operand_x(m->first, 0))->shape;
    bool whole = shape_count(value->shape) == shape_count(x);
    if (!whole || (h == x.h && w == x.w)) return false;
    value->shape.h = h;
    value->shape.w = w;
    value_set_bytes(value);
    return true;
}

static bool write_pixel(struct match *m)
{
    return m->first->op->flat_gradient && write_part(m, 1, 1);
}

static bool write_picked(struct match *m)
{
    struct shape whole = value_at(m, m->value)->shape;
    epilogue_add(m->first, EPILOGUE_PICK, OPERAND_ROLES, -1);
    return write_part(m, (whole.h + 1) / 2, (whole.w + 1) / 2);
}

static bool share(struct match *m, int value)
{
    epilogue_add(m->first, m->rule->adds.epilogue, m->rule->adds.first, value);
    operand_set(m->second, m->rule->adds.second, 0, value);
    return true;
}

/* Sums by channel of the value; in backward, of the gradient of the second's y. */
static int sums_new(struct match *m, int64_t rows)
{
    bool forward = m->second->phase == PHASE_FORWARD;
    const struct value *of = value_at(m, forward ? m->value : operand_y(m->second));
    return build_sums(m->program, m->second->node, (int)rows, of->shape.c,
                      text_format("%s%s sums", forward ? "" : "d ", of->name));
}

/* Not in fp32, where plain sums of squares would show. */
static bool share_statistics(struct match *m)
{
    int64_t channels = value_at(m, m->value)->shape.c;
    enum epilogue_kind kind = m->rule->adds.epilogue;
    if (!m->program->training || m->program->storage == F32) return false;
    return share(m, sums_new(m, kind == EPILOGUE_MOMENTS ? 2 : kind == EPILOGUE_SUMS ? 1 : 1 + channels));
}

static bool share_mask(struct match *m)
{
    const struct value *y = value_at(m, m->value);
    struct call_storage storage;
    const struct op *op = m->second->op;
    struct value mask = {.home = HOME_ARENA, .kind = KIND_SAVED, .dtype = U8, .node = m->first->node,
                         .index = -1, .shape = y->shape};
    if (m->first->op != op || !op->masks ||
        !op->masks(m->second->settings, program_call(m->program, m->second_number, &storage).x)) return false;
    mask.shape.c /= 8;
    return share(m, build_value(m->program, mask, text_format("%s mask", y->name)));
}

/* The first computes the later of two gradients, whose sum the second masks and passes on. */
static bool join(struct match *m)
{
    int d_y = operand(m->second, OPERAND_D_Y, 0), addend = operand(m->second, OPERAND_D_Y_ADDEND, 0);
    int other = m->value == d_y ? addend : d_y, mask = operand(m->second, OPERAND_MASK, 0);
    int joined = operand(m->second, OPERAND_D_X, 1);
    if (other < 0 || mask < 0 || joined < 0 || m->uses[other].writer >= m->first_number ||
        operand_x(m->first, 0) != operand_y(m->second)) return false;
    int sums = sums_new(m, 1);
    operand_set(m->first, OPERAND_D_X, 0, joined);
    epilogue_add(m->first, EPILOGUE_ADD, OPERAND_D_X_ADDEND, other);
    epilogue_add(m->first, EPILOGUE_MULTIPLY, OPERAND_MASK, mask);
    epilogue_add(m->first, EPILOGUE_SUMS, OPERAND_D_X_SUMS, sums);
    operand_set(m->second, OPERAND_D_Y, 0, joined);
    operand_set(m->second, OPERAND_D_Y_SUMS, 0, sums);
    operand_set(m->second, OPERAND_D_Y_ADDEND, 0, -1);
    operand_set(m->second, OPERAND_D_X, 1, -1);
    return true;
}

static bool read_sums(struct match *m)
{
    const struct instruction *at = m->second;
    int sums = operand(m->first, OPERAND_D_X_SUMS, 0);
    if (sums < 0 || operand(at, OPERAND_D_Y_ADDEND, 0) >= 0 ||
        (at->op->reads(at->settings, PHASE_BACKWARD) & READS_Y)) return false;
    operand_set(m->second, OPERAND_D_Y_SUMS, 0, sums);
    return true;
}

/* The second's y is what the first's gradient is of. */
static bool share_products(struct match *m)
{
    return operand_x(m->first, 0) == operand_y(m->second) && share(m, sums_new(m, 2));
}

/* Rows that are added begin with whole packs. */
static bool is_packed(const struct match *m, int value)
{
    return value_at(m, value)->shape.c % PACK_CHANNELS == 0;
}

/* The other summand is there before. */
static bool add_summand(struct match *m)
{
    int other = operand_x(m->second, operand_x(m->second, 0) == m->value);
    if (m->uses[other].writes != 1 || m->uses[other].writer >= m->first_number || !is_packed(m, m->value))
        return false;
    epilogue_add(m->first, EPILOGUE_ADD, OPERAND_D_X_ADDEND, other);
    return take_result(m);
}

static bool add_channels(struct match *m)
{
    int d_y = operand(m->first, OPERAND_D_Y, 0);
    if (!is_packed(m, d_y)) return false;
    operand_set(m->second, OPERAND_D_X_ADDEND, 0, d_y);
    operand_set(m->first, OPERAND_D_X, 0, -1);
    return true;
}

/* The other summand is there before. */
static bool add_residual(struct match *m)
{
    int other = operand_x(m->second, operand_x(m->second, 0) == m->value);
    if (operand_count(m->second, OPERAND_X) != 2 || other == m->value ||
        m->uses[other].writer >= m->first_number) return false;
    epilogue_add(m->first, EPILOGUE_ADD, OPERAND_Y_ADDEND, other);
    m->shaped_as = operand_y(m->second);
    return take_result(m);
}

/* An op that activates would have to know in backward, too. */
static bool apply_relu(struct match *m)
{
    if (m->first->op->activates) return false;
    epilogue_add(m->first, EPILOGUE_RELU, OPERAND_ROLES, -1);
    m->shaped_as = operand_y(m->second);
    return take_result(m);
}

static bool sum_bias(struct match *m)
{
    int bias = operand(m->second, OPERAND_D_PARAM, 1);
    if (bias < 0) return false;
    operand_set(m->second, OPERAND_D_PARAM, 1, -1);
    epilogue_add(m->first, EPILOGUE_SUMS, OPERAND_D_X_SUMS, bias);
    return true;
}

#define FORWARD PHASE_FORWARD
#define BACKWARD PHASE_BACKWARD
#define X OPERAND_X
#define Y OPERAND_Y
#define D_X OPERAND_D_X
#define D_Y OPERAND_D_Y
#define NOTHING {EPILOGUE_KINDS, OPERAND_ROLES, OPERAND_ROLES}
enum { SHARED, SINGLE_USE = RULE_SINGLE_USE, UNDIVIDED = RULE_UNDIVIDED };

/* The pass and the rule; the two instructions; what holds of them and the value between them; what is
 * added to them; the function that makes the change. */
static const struct rule rules[] = {
    /* A norm applies the activation behind it, and adds the shortcut in front of that. */
    {"fuse_activations", "fuse_shortcut", {NULL, FORWARD, Y}, {"add", FORWARD, X}, SINGLE_USE, NOTHING,
     take_residual},
#define ACTIVATION(NAME, op, ...)                                                                         \
    {"fuse_activations", "fuse_activation_" #op, {NULL, FORWARD, Y}, {#op, FORWARD, X}, SINGLE_USE,       \
     {EPILOGUE_##NAME, OPERAND_ROLES, OPERAND_ROLES}, take_activation},
#include "kernels/activations.def"
#undef ACTIVATION

    /* A convolution reads what is concatenated for it. */
    {"fold_concat_conv", "fold_concat_conv", {"concat", FORWARD, Y}, {"conv", FORWARD, X}, SINGLE_USE,
     NOTHING, fold_concat_conv},

    /* Layer scale multiplies the weights of the linear layer before it instead of its result. */
    {"fold_conv_batchnorm", "fold_scale", {"linear", FORWARD, Y}, {"scale", FORWARD, X}, SINGLE_USE, NOTHING,
     fold_scale},

    /* A 1x1 convolution's result is never stored: batch norm computes it as often as it reads it. */
    {"fold_conv_batchnorm", "fold_conv_batchnorm", {"conv", FORWARD, Y}, {"batchnorm", FORWARD, X},
     SINGLE_USE, NOTHING, fold_conv_batchnorm},

    /* A batch norm's result is not stored, either, before a 1x1 convolution to few filters, which normalises
     * what it reads. */
    {"fold_conv_batchnorm", "fold_batchnorm_conv", {"batchnorm", FORWARD, Y}, {"conv", FORWARD, X},
     SINGLE_USE, NOTHING, fold_batchnorm_conv},

    /* A transposed convolution writes its result where a concatenation wants it. */
    {"fold_conv_batchnorm", "fold_concat", {"conv_transpose", FORWARD, Y}, {"concat", FORWARD, X}, SINGLE_USE,
     NOTHING, fold_concat},

    /* One whose result such a convolution reads has the same kernels. */
    {"fold_conv_batchnorm", "fold_transpose", {"conv_transpose", FORWARD, Y}, {"concat_conv", FORWARD, X},
     SINGLE_USE, NOTHING, take_kernels},

    /* A batch norm's result is not stored before a max pooling. */
    {"fold_maxpool", "fold_maxpool", {"batchnorm", FORWARD, Y}, {"maxpool", FORWARD, X}, SINGLE_USE, NOTHING,
     fold_pool},

    /* Backward adds up two gradients as it reads them. Of one that is the same at all pixels of an image, a
     * pixel is left. */
    {"fuse_gradient_sums", "gradient_sum", {"sum", FORWARD, Y}, {NULL, BACKWARD, D_Y}, SINGLE_USE,
     {EPILOGUE_KINDS, OPERAND_ROLES, OPERAND_D_Y_ADDEND}, read_summands},
    {"fuse_gradient_sums", "flat_gradient", {NULL, BACKWARD, D_X}, {NULL, BACKWARD, OPERAND_D_Y_ADDEND},
     SINGLE_USE, NOTHING, write_pixel},
    /* The op that writes a batch norm's input leaves what the batch statistics are made of. */
    {"fuse_gradient_sums", "moments", {NULL, FORWARD, Y}, {NULL, FORWARD, X}, SHARED,
     {EPILOGUE_MOMENTS, OPERAND_Y_MOMENTS, OPERAND_X_MOMENTS}, share_statistics},
    {"fuse_gradient_sums", "gram", {NULL, FORWARD, Y}, {NULL, FORWARD, X}, SHARED,
     {EPILOGUE_GRAM, OPERAND_Y_SUMS, OPERAND_X_SUMS}, share_statistics},
    {"fuse_gradient_sums", "sums", {NULL, FORWARD, Y}, {NULL, FORWARD, X}, SHARED,
     {EPILOGUE_SUMS, OPERAND_Y_SUMS, OPERAND_X_SUMS}, share_statistics},

    /* Where backward only needs to know which elements are 0, it reads a bit for each: a sixteenth of the
     * bytes, in a value of its own. */
    {"relu_mask", "relu_mask", {NULL, FORWARD, Y}, {NULL, BACKWARD, Y}, SHARED,
     {EPILOGUE_MASK, OPERAND_MASK, OPERAND_MASK}, share_mask},

    /* The output of a residual block is read by the next block's convolution and by its residual, so its
     * gradient is a sum. A folded batch norm's backward (conv_batchnorm.c) needs that masked by
     * its activation, and the sums of the result by channel. If the convolution's data gradient is the second
     * summand to be computed, it produces all of this as it writes: batch norm needs no sweep, and its
     * residual's gradient is the same tensor. */
    {"join_residual_gradients", "join_d_y", {NULL, PHASE_BACKWARD_DATA, D_X}, {NULL, BACKWARD, D_Y},
     SINGLE_USE, {EPILOGUE_ADD, OPERAND_D_X_ADDEND, OPERAND_D_Y_SUMS}, join},
    {"join_residual_gradients", "join_addend", {NULL, PHASE_BACKWARD_DATA, D_X},
     {NULL, BACKWARD, OPERAND_D_Y_ADDEND}, SINGLE_USE,
     {EPILOGUE_ADD, OPERAND_D_X_ADDEND, OPERAND_D_Y_SUMS}, join},
    /* A projection of every second pixel leaves out the zeros between them. */
    {"join_residual_gradients", "pick", {NULL, BACKWARD, D_X},
     {NULL, PHASE_BACKWARD_DATA, OPERAND_D_X_ADDEND}, SINGLE_USE,
     {EPILOGUE_PICK, OPERAND_ROLES, OPERAND_ROLES}, write_picked},
    /* The projection shortcut of the block reads the sums, too. */
    {"join_residual_gradients", "share_sums", {NULL, PHASE_BACKWARD_DATA, D_X}, {NULL, BACKWARD, D_Y}, SHARED,
     {EPILOGUE_KINDS, OPERAND_ROLES, OPERAND_D_Y_SUMS}, read_sums},

    /* A folded convolution, or one to few filters, leaves the two sums of the gradient that the batch norm
     * before it needs. */
    {"gradient_products", "gradient_products", {NULL, BACKWARD, D_X}, {NULL, BACKWARD, D_Y}, SINGLE_USE,
     {EPILOGUE_PRODUCTS, OPERAND_X_PRODUCTS, OPERAND_Y_PRODUCTS}, share_products},

    /* The op that computes the later of two gradients adds the other one as it writes. The gradient of a
     * concatenation's first input is the first channels of its output's gradient: it is not even copied. */
    {"add_gradients", "add_gradient", {NULL, BACKWARD, D_X}, {"sum", FORWARD, X}, SINGLE_USE,
     {EPILOGUE_ADD, OPERAND_D_X_ADDEND, OPERAND_ROLES}, add_summand},
    {"add_gradients", "add_channels", {"concat", BACKWARD, D_X}, {NULL, BACKWARD, OPERAND_D_X_ADDEND},
     SINGLE_USE, NOTHING, add_channels},

    /* A batch norm whose output is pooled and read as it is, too, writes both. Backward reads the smaller of
     * the pooling's gradients. */
    {"fuse_pooling", "pool_output", {"batchnorm", FORWARD, Y}, {"maxpool", FORWARD, X}, SHARED,
     {EPILOGUE_POOL, OPERAND_POOLED, OPERAND_ROLES}, pool_output},
    {"fuse_pooling", "pool_gradient", {"maxpool", BACKWARD, D_X}, {"batchnorm", BACKWARD, OPERAND_D_Y_ADDEND},
     SINGLE_USE, {EPILOGUE_KINDS, OPERAND_ROLES, OPERAND_NUMBER}, pool_gradient},

    /* A product, or layer scale, adds the residual, which is there before, as it writes. */
    {"add_residual", "add_residual", {NULL, FORWARD, Y}, {"add", FORWARD, X}, SINGLE_USE | UNDIVIDED,
     {EPILOGUE_ADD, OPERAND_Y_ADDEND, OPERAND_ROLES}, add_residual},

    /* A relu's input is never stored. Backward stays as it is: it reads what relu wrote. */
    {"fuse_relu", "fuse_relu", {NULL, FORWARD, Y}, {"relu", FORWARD, X}, SINGLE_USE | UNDIVIDED,
     {EPILOGUE_RELU, OPERAND_ROLES, OPERAND_ROLES}, apply_relu},

    /* A bias's gradient is the sum by channel of the gradient of its op's output: the op that computes that
     * adds it up, so that the bias's own need not read it again. */
    {"bias_gradients", "bias_gradients", {NULL, BACKWARD, D_X}, {NULL, PHASE_BACKWARD_PARAMS, D_Y},
     UNDIVIDED, {EPILOGUE_SUMS, OPERAND_D_X_SUMS, OPERAND_ROLES}, sum_bias},
};

const struct rule *rules_table(int *count)
{
    *count = (int)(sizeof rules / sizeof *rules);
    return rules;
}

const struct rule *rules_find(const char *name)
{
    for (const struct rule *rule = rules; rule < rules + sizeof rules / sizeof *rules; rule++)
        if (strcmp(rule->name, name) == 0) return rule;
    return NULL;
}
