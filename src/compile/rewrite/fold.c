/* fold.c: combines a 1x1 convolution with many filters and the following batch norm into conv_batchnorm, in
 * training in 16 bits or tf32, if nothing else reads the convolution's output, which is then never stored. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/rewrite/merging.h"
#include "compile/rewrite/rewrites.h"
#include "kernels/norm/batchnorm.h"
#include "kernels/conv/conv.h"

struct folding {
    struct merging m;
    const struct op *conv, *batchnorm, *op;
    int64_t least;               /* elements of a result */
};

static bool is_product(const struct instruction *conv, int64_t channels)
{
    struct conv_geometry g = conv_geometry(conv->settings, channels);
    bool plain = g.groups == 1 && operand_count(conv, OPERAND_PARAM) == 1 && g.stride[0] == g.stride[1];
    for (int i = 0; i < 2; i++) plain = plain && g.kernel[i] == 1 && g.pad[i] == 0;
    return plain;
}

static const void *settings_of(const struct folding *f, const struct instruction *conv,
                               const struct instruction *norm)
{
    const struct batchnorm *s = norm->settings;
    struct conv_geometry g = conv_geometry(conv->settings, f->m.program->values[operand_x(conv, 0)].shape.c);
    char *own = batchnorm_folded_settings(s);
    int64_t filters = f->m.program->values[operand_y(norm)].shape.c;
    char *text = text_format("filters=%" PRId64 " stride=%" PRId64 " residual=%s %s", filters, g.stride[0],
                             s->residual ? "yes" : "no", own);
    free(own);
    return build_settings(f->m.program, f->op, text);
}

/* The convolution before the batch norm, if the two may be folded; -1. */
static int conv_of(const struct folding *f, int i)
{
    const struct instruction *norm = &f->m.program->instructions[i];
    if (norm->op != f->batchnorm || f->m.uses[operand_x(norm, 0)].reader != i) return -1;
    if (!activation_folds(((const struct batchnorm *)norm->settings)->activation)) return -1;
    if (shape_count(f->m.program->values[operand_y(norm)].shape) < f->least) return -1;
    int writer = f->m.uses[operand_x(norm, 0)].writer;
    if (writer < 0) return -1;
    const struct instruction *conv = &f->m.program->instructions[writer];
    const struct value *a = &f->m.program->values[operand_x(conv, 0)];
    return conv->op == f->conv && is_product(conv, a->shape.c) ? writer : -1;
}

/* The op decides for which sizes it is worthwhile. */
static bool fits(const struct folding *f, const void *settings, const struct instruction *conv,
                 const struct instruction *norm)
{
    struct reason reason;
    struct shape y, x[2] = {f->m.program->values[operand_x(conv, 0)].shape};
    int count = operand_count(norm, OPERAND_X);
    if (count > 1) x[1] = f->m.program->values[operand_x(norm, 1)].shape;
    return f->op->shape(settings, count, x, &y, &reason);
}

static void fold_pair(const struct folding *f, int at, struct instruction *norm)
{
    const struct instruction *conv = &f->m.program->instructions[at];
    const void *settings = settings_of(f, conv, norm);
    if (!fits(f, settings, conv, norm)) return;
    norm->settings = settings;
    norm->op = f->op;
    operand_set(norm, OPERAND_X, 0, operand_x(conv, 0));
    operand_set(norm, OPERAND_PARAM, operand_count(norm, OPERAND_PARAM), operand(conv, OPERAND_PARAM, 0));
    instruction_link(f->m.program, norm);
    f->m.gone[at] = true;
}

void fold(struct program *program, int64_t least)
{
    struct folding f = {.m = merging_open(program, NULL), .conv = build_op("conv"), .least = least,
                        .batchnorm = build_op("batchnorm"), .op = build_op("conv_batchnorm")};
    for (int i = 0; i < program->count; i++) {
        int conv = conv_of(&f, i);
        if (conv >= 0) fold_pair(&f, conv, &program->instructions[i]);
    }
    merging_close(&f.m);
}
