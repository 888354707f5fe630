/* fold_maxpool.c: combines a batch norm and the following max pooling into batchnorm_maxpool, in 16-bit
 * training, if nothing else reads the batch norm's output, which is then never stored. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/program_parts.h"
#include "compile/rewrites.h"
#include "kernels/batchnorm_maxpool.h"

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
    int x = pool->op == build_op("maxpool") && uses[pool->x[0]].reader == i ? pool->x[0] : -1;
    struct shape y;
    struct reason reason;
    if (x < 0 || uses[x].writer < 0 || dtype_bytes(program->values[x].dtype) != 2) return false;
    struct instruction *norm = &program->instructions[uses[x].writer];
    if (norm->op != build_op("batchnorm") || !is_foldable(norm->settings, pool->settings)) return false;
    const void *settings = settings_of(program, op, norm->settings, pool->settings);
    if (!op->shape(settings, 1, &program->values[norm->x[0]].shape, &y, &reason)) return false;
    norm->settings = settings;
    norm->op = op;
    norm->y = pool->y;
    instruction_link(program, norm);
    return true;
}

void fold_maxpool(struct program *program)
{
    struct value_uses *uses = value_uses(program);
    bool *gone = memory_new((size_t)program->count, sizeof *gone);
    for (int i = 0; i < program->count; i++) gone[i] = fold_pair(program, uses, i);
    build_remove(program, gone);
    free(uses);
    free(gone);
}
