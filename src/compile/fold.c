/* fold.c: a 1x1 convolution with many filters and the batch norm behind it become conv_batchnorm, in training
 * and 16 bits, where nobody else reads the convolution's result: that is then never stored. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/program_parts.h"
#include "kernels/batchnorm.h"
#include "kernels/conv.h"

struct folding {
    struct program *program;
    int *readers;                /* by value: how many instructions read it */
    int *writer;                 /* by value: the convolution that writes it; -1 */
    const struct op *conv, *batchnorm, *op;
    int64_t least;               /* numbers of a result */
};

static bool is_product(const struct instruction *conv, int64_t channels)
{
    struct conv_geometry g = conv_geometry(conv->settings, channels);
    bool plain = g.groups == 1 && conv->param_count == 1 && g.stride[0] == g.stride[1];
    for (int i = 0; i < 2; i++) plain = plain && g.kernel[i] == 1 && g.pad[i] == 0;
    return plain;
}

static const void *settings_of(const struct folding *f, const struct instruction *conv,
                               const struct instruction *norm)
{
    static const char *const activations[] = {[ACTIVATION_NONE] = "none", [ACTIVATION_RELU] = "relu",
                                              [ACTIVATION_RELU6] = "relu6"};
    const struct batchnorm *s = norm->settings;
    struct conv_geometry g = conv_geometry(conv->settings, f->program->values[conv->x[0]].shape.c);
    char *text = text_format(
        "filters=%" PRId64 " stride=%" PRId64 " eps=%.17g momentum=%.17g affine=%s activation=%s residual=%s",
        f->program->values[norm->y].shape.c, g.stride[0], s->eps, s->momentum, s->affine ? "yes" : "no",
        activations[s->activation], s->residual ? "yes" : "no");
    return build_settings(f->program, f->op, text);
}

/* The convolution before the batch norm, if the two may be folded; NULL. */
static struct instruction *conv_of(const struct folding *f, const struct instruction *norm)
{
    if (norm->op != f->batchnorm || f->writer[norm->x[0]] < 0 || f->readers[norm->x[0]] != 1) return NULL;
    enum activation activation = ((const struct batchnorm *)norm->settings)->activation;
    if (activation == ACTIVATION_LEAKY_RELU || activation_is_smooth(activation)) return NULL;
    if (shape_count(f->program->values[norm->y].shape) < f->least) return NULL;
    struct instruction *conv = &f->program->instructions[f->writer[norm->x[0]]];
    const struct value *a = &f->program->values[conv->x[0]];
    return is_product(conv, a->shape.c) && dtype_bytes(a->dtype) == 2 ? conv : NULL;
}

/* The op says for which sizes it pays. */
static bool fits(const struct folding *f, const void *settings, const struct instruction *conv,
                 const struct instruction *norm)
{
    struct reason reason;
    struct shape y, x[2] = {f->program->values[conv->x[0]].shape};
    if (norm->x_count > 1) x[1] = f->program->values[norm->x[1]].shape;
    return f->op->shape(settings, norm->x_count, x, &y, &reason);
}

static void fold_pair(const struct folding *f, struct instruction *conv, struct instruction *norm)
{
    const void *settings = settings_of(f, conv, norm);
    if (!fits(f, settings, conv, norm)) return;
    norm->settings = settings;
    norm->op = f->op;
    norm->x[0] = conv->x[0];
    norm->params = memory_resize(norm->params, (size_t)norm->param_count + 1, sizeof *norm->params);
    norm->params[norm->param_count++] = conv->params[0];
    instruction_link(f->program, norm);
    instruction_free(conv);
    conv->op = NULL;
}

void fold(struct program *program, int64_t least)
{
    size_t values = (size_t)program->value_count;
    struct folding f = {.program = program, .conv = build_op("conv"), .batchnorm = build_op("batchnorm"),
                        .op = build_op("conv_batchnorm"), .least = least,
                        .readers = memory_new(values, sizeof *f.readers),
                        .writer = memory_new(values, sizeof *f.writer)};
    for (size_t v = 0; v < values; v++) f.writer[v] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        for (int k = 0; k < at->read_count; k++) f.readers[at->reads[k]]++;
        if (at->op == f.conv) f.writer[at->y] = i;
    }
    for (int i = 0; i < program->count; i++) {
        struct instruction *conv = conv_of(&f, &program->instructions[i]);
        if (conv) fold_pair(&f, conv, &program->instructions[i]);
    }
    int count = 0;
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].op) program->instructions[count++] = program->instructions[i];
    program->count = count;
    free(f.readers);
    free(f.writer);
}
