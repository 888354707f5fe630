/* fold_maxpool.c: a batch norm and the max pooling behind it become batchnorm_maxpool, in training and 16 bits,
 * where nobody else reads the batch norm's result: that is then never stored. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/program_parts.h"
#include "kernels/batchnorm_maxpool.h"

/* By value: how many instructions read it, and the batch norm that writes it; -1. */
struct uses {
    int readers, norm;
};

static struct uses *uses_new(const struct program *program)
{
    const struct op *batchnorm = build_op("batchnorm");
    struct uses *uses = memory_new((size_t)program->value_count, sizeof *uses);
    for (int v = 0; v < program->value_count; v++) uses[v].norm = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        for (int k = 0; k < at->read_count; k++) uses[at->reads[k]].readers++;
        if (at->op == batchnorm) uses[at->y].norm = i;
    }
    return uses;
}

static const void *settings_of(struct program *program, const struct op *op, const struct batchnorm *norm,
                               const struct pool *pool)
{
    static const char *const activations[] = {[ACTIVATION_NONE] = "none", [ACTIVATION_RELU] = "relu",
                                              [ACTIVATION_RELU6] = "relu6"};
    char *text = text_format("eps=%.17g momentum=%.17g affine=%s activation=%s kernel=%" PRId64
                             " pad=%" PRId64 " ceil_mode=%s",
                             norm->eps, norm->momentum, norm->affine ? "yes" : "no",
                             activations[norm->activation], pool->kernel, pool->pad,
                             pool->ceil_mode ? "yes" : "no");
    return build_settings(program, op, text);
}

/* Whether the op takes them; it says itself for which shapes. */
static bool is_foldable(const struct batchnorm *norm, const struct pool *pool)
{
    int64_t stride = pool->stride ? pool->stride : pool->kernel;
    return !norm->residual && norm->activation != ACTIVATION_LEAKY_RELU && pool->dilation <= 1 &&
           stride == 2 && (pool->kernel == 2 || pool->kernel == 3);
}

static void fold_pair(struct program *program, const struct op *op, struct instruction *norm,
                      struct instruction *pool)
{
    struct shape y;
    struct reason reason;
    if (!is_foldable(norm->settings, pool->settings)) return;
    const void *settings = settings_of(program, op, norm->settings, pool->settings);
    if (!op->shape(settings, 1, &program->values[norm->x[0]].shape, &y, &reason)) return;
    norm->settings = settings;
    norm->op = op;
    norm->y = pool->y;
    instruction_link(program, norm);
    instruction_free(pool);
    pool->op = NULL;
}

void fold_maxpool(struct program *program)
{
    const struct op *maxpool = build_op("maxpool"), *op = build_op("batchnorm_maxpool");
    struct uses *uses = uses_new(program);
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        struct instruction *pool = &program->instructions[i];
        if (pool->op != maxpool || uses[pool->x[0]].norm < 0 || uses[pool->x[0]].readers != 1) continue;
        if (dtype_bytes(program->values[pool->x[0]].dtype) != 2) continue;
        fold_pair(program, op, &program->instructions[uses[pool->x[0]].norm], pool);
    }
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].op) program->instructions[count++] = program->instructions[i];
    program->count = count;
    free(uses);
}
