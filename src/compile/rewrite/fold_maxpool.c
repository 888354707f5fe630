/* fold_maxpool.c: combines a batch norm and the following max pooling into batchnorm_maxpool, in 16-bit
 * training, if nothing else reads the batch norm's output, which is then never stored; and both and the
 * preceding convolution of the images, where the code for it runs, into conv_batchnorm_maxpool. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/rewrite/merging.h"
#include "compile/rewrite/rewrites.h"
#include "kernels/norm/conv_batchnorm_maxpool.h"

static const void *settings_of(struct program *program, const struct op *op, const struct batchnorm *norm,
                               const struct pool *pool)
{
    char *own = batchnorm_folded_settings(norm);
    char *text = text_format("%s kernel=%" PRId64 " pad=%" PRId64 " ceil_mode=%s", own, pool->kernel,
                             pool->pad, pool->ceil_mode ? "yes" : "no");
    free(own);
    return build_settings(program, op, text);
}

/* Whether the op supports their shapes. */
static bool is_foldable(const struct batchnorm *norm, const struct pool *pool)
{
    int64_t stride = pool->stride ? pool->stride : pool->kernel;
    return !norm->residual && activation_folds(norm->activation) && pool->dilation <= 1 &&
           stride == 2 && (pool->kernel == 2 || pool->kernel == 3);
}

/* Merges a max pooling into the preceding batch norm, if possible; returns whether it did. */
static bool fold_pair(struct program *program, const struct value_uses *uses, int i)
{
    const struct op *op = build_op("batchnorm_maxpool");
    const struct instruction *pool = &program->instructions[i];
    int x = operand_x(pool, 0);
    if (pool->op != build_op("maxpool") || uses[x].reader != i) return false;
    struct shape y;
    struct reason reason;
    if (uses[x].writer < 0 || dtype_bytes(program->values[x].dtype) != 2) return false;
    struct instruction *norm = &program->instructions[uses[x].writer];
    if (norm->op != build_op("batchnorm") || !is_foldable(norm->settings, pool->settings)) return false;
    const void *settings = settings_of(program, op, norm->settings, pool->settings);
    if (!op->shape(settings, 1, &program->values[operand_x(norm, 0)].shape, &y, &reason)) return false;
    norm->settings = settings;
    norm->op = op;
    operand_set(norm, OPERAND_Y, 0, operand_y(pool));
    instruction_link(program, norm);
    return true;
}

/* Whether the op's convolution is this one. */
static bool is_first(const struct instruction *conv)
{
    struct conv_geometry g = conv_geometry(conv->settings, FIRST_CHANNELS);
    bool same = conv->op == build_op("conv") && operand_count(conv, OPERAND_PARAM) == 1 && g.groups == 1;
    for (int i = 0; i < 2; i++)
        same = same && g.kernel[i] == FIRST_KERNEL && g.stride[i] == FIRST_STRIDE && g.pad[i] == FIRST_PAD &&
               g.dilation[i] == 1;
    return same;
}

static bool is_first_pool(const struct pool *pool)
{
    return pool->kernel == FIRST_WINDOW && pool->stride == FIRST_WINDOW_STRIDE &&
           pool->pad == FIRST_WINDOW_PAD && !pool->ceil_mode;
}

/* Whether the op accepts the image, and its code runs it. */
static bool is_supported(const struct program *program, const struct kernel_options *options,
                         const struct op *op, const void *settings, int image)
{
    const struct op_code *code = options->code_of(op);
    const struct value *value = &program->values[image];
    struct tensor x = {.dtype = value->dtype, .shape = value->shape};
    struct call call = {.settings = settings, .training = true, .x_count = 1, .x = &x,
                        .device = options->device};
    struct shape y;
    struct reason reason;
    return op->shape(settings, 1, &x.shape, &y, &reason) && code &&
           (!code->supports || code->supports(&call));
}

/* Merges the convolution in front of batchnorm_maxpool i, if possible; returns its instruction, or -1. */
static int fold_conv(struct program *program, const struct value_uses *uses,
                     const struct kernel_options *options, int i)
{
    const struct op *op = build_op("conv_batchnorm_maxpool");
    struct instruction *pool = &program->instructions[i];
    const struct value_uses *use = &uses[operand_x(pool, 0)];
    int writer = use->reader == i ? use->writer : -1;
    if (writer < 0) return -1;
    const struct instruction *conv = &program->instructions[writer];
    const struct batchnorm_maxpool *s = pool->settings;
    if (!is_first(conv) || uses[operand_x(conv, 0)].writer >= 0 || !is_first_pool(&s->pool)) return -1;
    char *own = batchnorm_folded_settings(&s->norm);
    int64_t filters = program->values[operand_y(conv)].shape.c;
    const void *settings = build_settings(program, op, text_format("filters=%" PRId64 " %s", filters, own));
    free(own);
    if (!is_supported(program, options, op, settings, operand_x(conv, 0))) return -1;
    pool->settings = settings;
    pool->op = op;
    operand_set(pool, OPERAND_X, 0, operand_x(conv, 0));
    operand_set(pool, OPERAND_PARAM, operand_count(pool, OPERAND_PARAM), operand(conv, OPERAND_PARAM, 0));
    instruction_link(program, pool);
    return writer;
}

void fold_maxpool(struct program *program, const struct kernel_options *options)
{
    struct merging m = merging_open(program, options->code_of);
    for (int i = 0; i < program->count; i++) {
        m.gone[i] = fold_pair(program, m.uses, i);
        if (!m.gone[i]) continue;
        int norm = m.uses[operand_x(&program->instructions[i], 0)].writer;
        int conv = fold_conv(program, m.uses, options, norm);
        if (conv >= 0) m.gone[conv] = true;
    }
    merging_close(&m);
}
