/* Values are n, c, h, w in ONNX, and n, c after linear and flatten: writer.ranks has the rank of each. */
#include "graph/graph_onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/memory.h"
#include "graph/batchnorm_fold.h"
#include "graph/onnx_geometry.h"
#include "kernels/attention/attention.h"
#include "kernels/norm/batchnorm.h"
#include "kernels/shape/border.h"
#include "kernels/shape/channel_shuffle.h"
#include "kernels/conv/conv.h"
#include "kernels/elementwise/gelu.h"
#include "kernels/norm/grn.h"
#include "kernels/norm/groupnorm.h"
#include "kernels/norm/layernorm.h"
#include "kernels/elementwise/activation.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/lrn.h"
#include "kernels/pool/pool.h"
#include "kernels/shape/slice.h"
#include "kernels/shape/upsample.h"
#include "kernels/tokens/tokens.h"

struct writer {
    const struct graph *graph;
    const struct graph_onnx_options *options;
    struct onnx *onnx;
    enum status status;          /* of all so far; after a failure the output is irrelevant */
    const char **values;         /* by node: the ONNX value that is its output */
    int *ranks;
    int *folded;                 /* by node: the batch norm that is folded into it; 0: none */
    bool *rounded;               /* by node: its output is to become 8 bits */
    double *scales;              /* ... and between two of their numbers lies this; 0: it is fp32 */
    char **names;                /* made for values; freed at the end */
    int name_count;
};

/* How an op is written. */
struct rule {
    const char *op, *onnx;
    int rank;                    /* of its inputs; 0: as they come */
    /* Writes the nodes of graph node i but the last, `out`, of which op, name and inputs are filled in, and
     * completes that; or gives w->values[i] an earlier value. NULL: `out` as it is. */
    void (*write)(struct writer *w, int i, struct onnx_node *out);
    struct pool_plane (*plane)(const struct call *call);
    struct border (*border)(const struct call *call);
};
static const struct rule *rule_of(const struct op *op);
static const char *input_of(struct writer *w, const struct node *reader, int k, int rank);

/* Names of layers have no colons. */
static const char *name_new(struct writer *w, const char *of, const char *part)
{
    char *name = text_format("%s.%s", of, part);
    if (graph_find(w->graph, name) >= 0) name[strlen(of)] = ':';
    return *array_push(w->names, w->name_count) = name;
}

static void refuse(struct writer *w, const struct node *node, const char *why)
{
    w->status = fail(USAGE, "%s: layer '%s' (%s): %s", w->graph->arch, node->name, node->op->name, why);
}

/* The layer's settings and input shape, as its own code reads them. */
static struct call call_of(const struct writer *w, const struct node *node, struct tensor *x)
{
    *x = (struct tensor){.shape = w->graph->nodes[node->inputs[0]].shape};
    return (struct call){.settings = node->settings, .x_count = 1, .x = x};
}

/* Attributes. */

static void add(struct onnx_node *node, struct onnx_attribute attribute)
{
    int count = 0;
    while (node->attributes[count].name) count++;
    node->attributes[count] = attribute;
}

static void add_int(struct onnx_node *node, const char *name, int64_t value)
{
    add(node, (struct onnx_attribute){.name = name, .type = ONNX_INT, .ints = {value}});
}

static void add_float(struct onnx_node *node, const char *name, double value)
{
    add(node, (struct onnx_attribute){.name = name, .type = ONNX_FLOAT, .real = value});
}

/* One number along h and one along w. */
static void add_pair(struct onnx_node *node, const char *name, const int64_t value[2])
{
    add(node, (struct onnx_attribute){.name = name, .type = ONNX_INT_LIST, .count = 2,
                                      .ints = {value[0], value[1]}});
}

static void add_pads(struct onnx_node *node, const int64_t before[2], const int64_t after[2])
{
    add(node, (struct onnx_attribute){.name = "pads", .type = ONNX_INT_LIST, .count = 4,
                                      .ints = {before[0], before[1], after[0], after[1]}});
}

/* Constants, as another input of a node. */

static void write_numbers(struct writer *w, const char *name, struct onnx_dims dims, const float *values)
{
    int64_t count = 1;
    for (int i = 0; i < dims.rank; i++) count *= dims.dim[i];
    if (w->options->dtype == F32) {
        onnx_tensor(w->onnx, name, F32, dims, values);
        return;
    }
    uint16_t *half = memory_new((size_t)count, sizeof *half);
    dtype_convert(F16, half, F32, values, (size_t)count);
    onnx_tensor(w->onnx, name, F16, dims, half);
    for (int64_t i = 0; i < count && w->status == OK; i++)
        if (isfinite(values[i]) && !isfinite(f16_to_float(half[i])))
            w->status = fail(USAGE, "%s: '%s' has a number that fp16 cannot hold: %g", w->graph->arch, name,
                             (double)values[i]);
    free(half);
}

static void add_numbers(struct writer *w, struct onnx_node *node, const char *part, struct onnx_dims dims,
                        const float *values)
{
    const char *name = name_new(w, node->name, part);
    write_numbers(w, name, dims, values);
    node->inputs[node->input_count++] = name;
}

static void add_indices(struct writer *w, struct onnx_node *node, const char *part, int count,
                        const int64_t *values)
{
    const char *name = name_new(w, node->name, part);
    onnx_tensor(w->onnx, name, I64, (struct onnx_dims){1, {count}}, values);
    node->inputs[node->input_count++] = name;
}

/* A parameter of a node by its place among them, for the caller to free. */
static float *values_read(void *context, int param)
{
    struct writer *w = context;
    float *values = memory_new((size_t)shape_count(w->graph->params[param].spec.shape), sizeof *values);
    if (w->status == OK) w->status = w->options->read(w->options->context, param, values);
    return values;
}

static float *param_read(struct writer *w, const struct node *node, int place)
{
    return values_read(w, node->param_first + place);
}

/* A parameter of a number a channel, in these dimensions. */
static void add_param(struct writer *w, const struct node *node, int place, const char *part,
                      struct onnx_dims dims, struct onnx_node *out)
{
    float *values = param_read(w, node, place);
    add_numbers(w, out, part, dims, values);
    free(values);
}

/* Nodes before a layer's last one: NAME.PART, which then becomes an input of the last one. */

static struct onnx_node part_of(struct writer *w, const struct onnx_node *out, const char *op,
                                const char *part)
{
    return (struct onnx_node){.op = op, .name = name_new(w, out->name, part), .input_count = 1,
                              .inputs = {out->inputs[0]}};
}

static void write_part(struct writer *w, const struct onnx_node *part, struct onnx_node *out)
{
    onnx_node(w->onnx, part);
    out->inputs[0] = part->name;
}

/* Convolution, linear, batch norm. */

/* NAME, integers of these scales by filter, as the numbers that they stand for. */
static void add_integers(struct writer *w, struct onnx_node *out, const char *part, enum onnx_integer type,
                         struct onnx_dims dims, const void *values, const float *scales)
{
    const struct onnx_dims filters = {1, {dims.dim[0]}};
    struct onnx_node floats = {.op = "DequantizeLinear", .name = name_new(w, out->name, part),
                               .input_count = 3};
    void *zeros = memory_new((size_t)dims.dim[0], sizeof(int32_t));
    for (int i = 0; i < 3; i++)
        floats.inputs[i] = name_new(w, floats.name, (const char *[]){"integers", "scale", "zero"}[i]);
    onnx_integers(w->onnx, floats.inputs[0], type, dims, values);
    onnx_tensor(w->onnx, floats.inputs[1], F32, filters, scales);
    onnx_integers(w->onnx, floats.inputs[2], type, filters, zeros);
    add_int(&floats, "axis", 0);
    onnx_node(w->onnx, &floats);
    out->inputs[out->input_count++] = floats.name;
    free(zeros);
}

#define INT8_MAX_WEIGHT 127
#define INT32_MAX_BIAS 0x1p30  /* scales are not so small that a bias exceeds it */

/* Weights in symmetric 8 bits by filter, and a bias in the products' scales, of inputs that have one. */
static void add_rounded_weights(struct writer *w, const struct node *node, struct onnx_dims dims,
                                const float *weight, const float *bias, struct onnx_node *out)
{
    int64_t filters = dims.dim[0], length = 1;
    double input = w->scales[node->inputs[0]];
    for (int i = 1; i < dims.rank; i++) length *= dims.dim[i];
    float *scales = memory_new((size_t)filters, sizeof *scales);
    int8_t *rounded = memory_new((size_t)(filters * length), 1);
    int32_t *sums = memory_new((size_t)filters, sizeof *sums);
    for (int64_t k = 0; k < filters; k++) {
        const float *row = weight + k * length;
        float most = 0;
        for (int64_t i = 0; i < length; i++) most = fmaxf(most, fabsf(row[i]));
        scales[k] = most > 0 ? most / INT8_MAX_WEIGHT : 1;
        if (bias) scales[k] = fmaxf(scales[k], (float)(fabsf(bias[k]) / input / INT32_MAX_BIAS));
        for (int64_t i = 0; i < length; i++) rounded[k * length + i] = (int8_t)lroundf(row[i] / scales[k]);
        if (bias) sums[k] = (int32_t)lround(bias[k] / (input * scales[k]));
    }
    add_integers(w, out, "weight", ONNX_INT8, dims, rounded, scales);
    for (int64_t k = 0; k < filters; k++) scales[k] = (float)(input * scales[k]);
    if (bias) add_integers(w, out, "bias", ONNX_INT32, (struct onnx_dims){1, {filters}}, sums, scales);
    free(scales);
    free(rounded);
    free(sums);
}

/* Weight and bias become inputs of a convolution or a matrix product; `norm` is folded into them. */
static void add_weights(struct writer *w, const struct node *node, const struct node *norm,
                        struct onnx_node *out)
{
    struct shape shape = w->graph->params[node->param_first].spec.shape;
    int64_t filters = node->shape.c, length = shape_count(shape) / shape.dim[0];
    bool biased = node->param_count > 1;
    float *weight = param_read(w, node, 0);
    float *bias = biased ? param_read(w, node, 1) : memory_new((size_t)filters, sizeof *bias);
    struct affine affine = {0};
    if (norm) {
        affine = batchnorm_fold_affine(norm, values_read, w);
        batchnorm_fold_apply(&affine, filters, length, false, weight, weight);
        batchnorm_fold_apply(&affine, filters, 1, true, bias, bias);
    }
    struct onnx_dims dims = {strcmp(out->op, "Conv") == 0 ? 4 : shape.rank,
                             {shape.dim[0], shape.dim[1], shape.dim[2], shape.dim[3]}};
    if (w->scales[node->inputs[0]] > 0 && strcmp(out->op, "ConvTranspose") != 0) {
        add_rounded_weights(w, node, dims, weight, biased || norm ? bias : NULL, out);
    } else {
        add_numbers(w, out, "weight", dims, weight);
        if (biased || norm) add_numbers(w, out, "bias", (struct onnx_dims){1, {filters}}, bias);
    }
    free(affine.scale);
    free(affine.shift);
    free(weight);
    free(bias);
}

static void write_conv(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    struct conv_geometry g = conv_geometry(node->settings, w->graph->nodes[node->inputs[0]].shape.c);
    add_weights(w, node, w->folded[i] ? &w->graph->nodes[w->folded[i]] : NULL, out);
    add_pair(out, "kernel_shape", g.kernel);
    add_pair(out, "strides", g.stride);
    add_pads(out, g.pad, g.pad);
    add_pair(out, "dilations", g.dilation);
    add_int(out, "group", g.groups);
}

static void write_conv_transpose(struct writer *w, int i, struct onnx_node *out)
{
    const struct conv_transpose *s = w->graph->nodes[i].settings;
    write_conv(w, i, out);
    add_pair(out, "output_padding", (const int64_t[]){s->output_pad, s->output_pad});
}

/* A linear layer by pixel is a convolution of 1x1. */
static void write_linear(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    bool per_pixel = ((const struct linear_settings *)node->settings)->per_pixel;
    w->ranks[i] = per_pixel ? 4 : 2;
    out->inputs[0] = input_of(w, node, 0, w->ranks[i]);
    out->op = per_pixel ? "Conv" : "Gemm";
    add_weights(w, node, NULL, out);
    if (!per_pixel) add_int(out, "transB", 1);
}

static void write_batchnorm(struct writer *w, int i, struct onnx_node *out)
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    const struct node *node = &w->graph->nodes[i];
    const struct batchnorm *s = node->settings;
    struct batchnorm_statistics at = batchnorm_statistics(s);
    const int places[] = {0, 1, at.mean, at.variance};
    if (s->activation != ACTIVATION_NONE || s->residual)
        refuse(w, node, "ONNX's batch norm has no activation or residual; make them separate layers");
    if (w->folded[node->inputs[0]] == i) {
        w->values[i] = out->inputs[0];
        return;
    }
    for (int k = 0; k < 4; k++) {
        bool learned = k >= 2 || s->affine;
        float *values = param_read(w, node, learned ? places[k] : at.mean);
        for (int64_t c = 0; !learned && c < node->shape.c; c++) values[c] = k == 0;
        add_numbers(w, out, names[k], (struct onnx_dims){1, {node->shape.c}}, values);
        free(values);
    }
    add_float(out, "epsilon", s->eps);
}

/* The order of the axes of a value that has `count`. */
static void add_order(struct onnx_node *out, int count, const int64_t *order)
{
    struct onnx_attribute perm = {.name = "perm", .type = ONNX_INT_LIST, .count = count};
    memcpy(perm.ints, order, (size_t)count * sizeof *order);
    add(out, perm);
}

static void write_layernorm(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    const struct layernorm *s = node->settings;
    struct onnx_node channels_last = part_of(w, out, "Transpose", "channels_last");
    struct onnx_node norm = part_of(w, out, "LayerNormalization", "norm");
    add_order(&channels_last, 4, (const int64_t[]){0, 2, 3, 1});
    write_part(w, &channels_last, &norm);
    for (int k = 0; k < 2; k++)
        add_param(w, node, k, k ? "bias" : "weight", (struct onnx_dims){1, {node->shape.c}}, &norm);
    add_int(&norm, "axis", -1);
    add_float(&norm, "epsilon", s->eps);
    write_part(w, &norm, out);
    add_order(out, 4, (const int64_t[]){0, 3, 1, 2});
}

/* x + (x * (norms / (mean of norms + eps)) * weight + bias) */
static void write_grn(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    const struct grn *s = node->settings;
    const struct onnx_dims dims = {4, {1, node->shape.c, 1, 1}};
    const char *x = out->inputs[0];
    struct onnx_node norms = part_of(w, out, "ReduceL2", "norms");
    struct onnx_node mean = part_of(w, out, "ReduceMean", "mean");
    struct onnx_node safe = part_of(w, out, "Add", "safe"), share = part_of(w, out, "Div", "share");
    struct onnx_node scaled = part_of(w, out, "Mul", "scaled"), factor = part_of(w, out, "Mul", "factor");
    struct onnx_node shifted = part_of(w, out, "Add", "shifted");
    norms.opset = mean.opset = 18;
    add_indices(w, &norms, "axes", 2, (const int64_t[]){2, 3});
    write_part(w, &norms, &mean);
    add_indices(w, &mean, "axes", 1, (const int64_t[]){1});
    write_part(w, &mean, &safe);
    add_numbers(w, &safe, "eps", (struct onnx_dims){0}, &(float){(float)s->eps});
    onnx_node(w->onnx, &safe);
    share.inputs[0] = norms.name;
    share.inputs[share.input_count++] = safe.name;
    write_part(w, &share, &factor);
    add_param(w, node, 0, "weight", dims, &factor);
    write_part(w, &factor, &scaled);
    scaled.inputs[scaled.input_count++] = x;
    write_part(w, &scaled, &shifted);
    add_param(w, node, 1, "bias", dims, &shifted);
    write_part(w, &shifted, out);
    out->inputs[out->input_count++] = x;
}

static void add_constant(struct writer *w, struct onnx_node *out, const char *part, struct onnx_dims dims,
                         float value)
{
    float *values = memory_new((size_t)dims.dim[0], sizeof *values);
    for (int64_t k = 0; k < dims.dim[0]; k++) values[k] = value;
    add_numbers(w, out, part, dims, values);
    free(values);
}

static void write_instancenorm(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    const struct groupnorm *s = node->settings;
    const struct onnx_dims dims = {1, {node->shape.c}};
    for (int k = 0; k < 2; k++)
        if (s->affine) add_param(w, node, k, k ? "bias" : "weight", dims, out);
        else add_constant(w, out, k ? "bias" : "weight", dims, k == 0);
    add_float(out, "epsilon", s->eps);
}

/* An instance norm of groups, whose channels lie one behind the other. */
static void write_groupnorm(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    const struct groupnorm *s = node->settings;
    const struct onnx_dims dims = {3, {node->shape.c, 1, 1}};
    struct onnx_node shape = part_of(w, out, "Shape", "shape"), join = part_of(w, out, "Reshape", "join");
    struct onnx_node norm = part_of(w, out, "InstanceNormalization", "norm");
    struct onnx_node split = part_of(w, out, "Reshape", "split"), scaled = part_of(w, out, "Mul", "scaled");
    onnx_node(w->onnx, &shape);
    add_indices(w, &join, "groups", 3, (const int64_t[]){0, s->groups, -1});
    write_part(w, &join, &norm);
    for (int k = 0; k < 2; k++)
        add_constant(w, &norm, k ? "zero" : "one", (struct onnx_dims){1, {s->groups}}, k == 0);
    add_float(&norm, "epsilon", s->eps);
    write_part(w, &norm, &split);
    split.inputs[split.input_count++] = shape.name;
    if (!s->affine) {
        *out = split;
        out->name = node->name;
        return;
    }
    write_part(w, &split, &scaled);
    add_param(w, node, 0, "weight", dims, &scaled);
    write_part(w, &scaled, out);
    add_param(w, node, 1, "bias", dims, out);
}

static void write_scale(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    add_param(w, node, 0, "weight", (struct onnx_dims){4, {1, node->shape.c, 1, 1}}, out);
}

/* Attention. */

/* Where the tokens of groups are in an image, [groups, tokens]; or back: where each token of y is there. */
static int64_t *token_places(const struct attention_plane *p, bool back)
{
    int64_t *places = memory_new((size_t)(p->h * p->w), sizeof *places);
    for (int64_t i = 0; i < p->h * p->w; i++) {
        struct attention_token token = attention_token(p, i / p->tokens, i % p->tokens);
        if (!back) places[i] = token.pixel;
        else if (token.y_pixel >= 0) places[token.y_pixel] = i;
    }
    return places;
}

static void gather_tokens(struct writer *w, const struct attention_plane *p, bool back, struct onnx_node *out)
{
    struct onnx_node gather = part_of(w, out, "Gather", back ? "unite" : "divide");
    int64_t *places = token_places(p, back);
    struct onnx_dims dims = {2, {p->groups, p->tokens}};
    if (back) dims = (struct onnx_dims){1, {p->y_h * p->y_w}};
    gather.inputs[gather.input_count++] = name_new(w, gather.name, "tokens");
    onnx_tensor(w->onnx, gather.inputs[1], I64, dims, places);
    add_int(&gather, "axis", 2);
    write_part(w, &gather, out);
    free(places);
}

/* [groups, heads, tokens, tokens]; without a shift that of one group is all groups'. */
static void add_bias(struct writer *w, const struct node *node, const struct attention_plane *p,
                     struct onnx_node *out)
{
    int64_t groups = p->shift_h || p->shift_w ? p->groups : 1, pairs = p->tokens * p->tokens;
    int64_t count = groups * p->heads * pairs;
    float *table = param_read(w, node, 0), *bias = memory_new((size_t)count, sizeof *bias);
    for (int64_t i = 0; i < count; i++) {
        int64_t group = i / pairs / p->heads, query = i / p->tokens % p->tokens, key = i % p->tokens;
        bool apart = attention_token(p, group, query).region != attention_token(p, group, key).region;
        int64_t row = attention_bias_row(p->window, query, key);
        bias[i] = table[row * p->heads + i / pairs % p->heads] + (apart ? ATTENTION_APART : 0);
    }
    add_numbers(w, out, "bias", (struct onnx_dims){4, {groups, p->heads, p->tokens, p->tokens}}, bias);
    free(bias);
    free(table);
}

/* Queries, keys or values, [n, groups, heads, size, tokens]; queries, transposed. */
static struct onnx_node write_projection(struct writer *w, const struct onnx_node *from, int64_t part)
{
    static const char *const names[] = {"q", "k", "v"};
    struct onnx_node gather = part_of(w, from, "Gather", names[part]);
    gather.inputs[gather.input_count++] = name_new(w, gather.name, "part");
    onnx_tensor(w->onnx, gather.inputs[1], I64, (struct onnx_dims){0}, &part);
    add_int(&gather, "axis", 0);
    onnx_node(w->onnx, &gather);
    return gather;
}

static const char *write_turned(struct writer *w, const struct onnx_node *out, const char *from,
                                const char *part)
{
    struct onnx_node turn = part_of(w, out, "Transpose", part);
    turn.inputs[0] = from;
    add_order(&turn, 5, (const int64_t[]){0, 1, 2, 4, 3});
    onnx_node(w->onnx, &turn);
    return turn.name;
}

/* v p', where p is the softmax of scale * q' k + bias. */
static void write_heads(struct writer *w, const struct node *node, const struct attention_plane *p,
                        struct onnx_node *out)
{
    struct onnx_node q = write_projection(w, out, 0), k = write_projection(w, out, 1);
    struct onnx_node v = write_projection(w, out, 2), scores = part_of(w, out, "MatMul", "scores");
    scores.inputs[0] = write_turned(w, out, q.name, "queries");
    scores.inputs[scores.input_count++] = k.name;
    onnx_node(w->onnx, &scores);
    struct onnx_node scaled = part_of(w, out, "Mul", "scaled"), biased = part_of(w, out, "Add", "biased");
    struct onnx_node softmax = part_of(w, out, "Softmax", "softmax");
    struct onnx_node mixed = part_of(w, out, "MatMul", "mixed");
    scaled.inputs[0] = scores.name;
    add_numbers(w, &scaled, "scale", (struct onnx_dims){0}, &(float){(float)attention_scale(p)});
    onnx_node(w->onnx, &scaled);
    biased.inputs[0] = softmax.inputs[0] = scaled.name;
    if (p->window > 0) {
        add_bias(w, node, p, &biased);
        write_part(w, &biased, &softmax);
    }
    add_int(&softmax, "axis", -1);
    onnx_node(w->onnx, &softmax);
    mixed.inputs[0] = v.name;
    mixed.inputs[mixed.input_count++] = write_turned(w, out, softmax.name, "weights");
    write_part(w, &mixed, out);
}

/* From n, 3 x heads x size, h, w to 3, n, groups, heads, size, tokens; from n, groups, heads, size, tokens to
 * n, heads x size, h, w. */
static void write_attention(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    struct tensor x[2];
    struct call call = call_of(w, node, x);
    x[1].shape = w->graph->nodes[node->inputs[node->input_count - 1]].shape;
    x[0].shape.n = x[1].shape.n = 1;
    call.x_count = node->input_count;
    struct attention_plane p = attention_plane(&call);
    struct onnx_node flat = part_of(w, out, "Reshape", "flat"), split = part_of(w, out, "Reshape", "split");
    struct onnx_node order = part_of(w, out, "Transpose", "order");
    struct onnx_node back = part_of(w, out, "Transpose", "back");
    struct onnx_node merge = part_of(w, out, "Reshape", "merge");
    add_indices(w, &flat, "shape", 3, (const int64_t[]){0, x[0].shape.c, p.h * p.w});
    write_part(w, &flat, out);
    if (p.window > 0) gather_tokens(w, &p, false, out);
    add_indices(w, &split, "shape", 6, (const int64_t[]){0, 3, p.heads, p.size, p.groups, p.tokens});
    split.inputs[0] = out->inputs[0];
    write_part(w, &split, &order);
    add_order(&order, 6, (const int64_t[]){1, 0, 4, 2, 3, 5});
    write_part(w, &order, out);
    write_heads(w, node, &p, out);
    add_order(&back, 5, (const int64_t[]){0, 2, 3, 1, 4});
    back.inputs[0] = out->inputs[0];
    write_part(w, &back, &merge);
    add_indices(w, &merge, "shape", 3, (const int64_t[]){0, p.heads * p.size, p.h * p.w});
    write_part(w, &merge, out);
    if (p.window > 0) gather_tokens(w, &p, true, out);
    out->input_count = 1;
    add_indices(w, out, "shape", 4, (const int64_t[]){0, p.heads * p.size, p.y_h, p.y_w});
}

/* Activations. */

static void write_hardsigmoid(struct writer *w, int i, struct onnx_node *out)
{
    add_float(out, "alpha", 1 / 6.0);
    add_float(out, "beta", 0.5);
}

static void write_relu6(struct writer *w, int i, struct onnx_node *out)
{
    add_numbers(w, out, "min", (struct onnx_dims){0}, &(float){0});
    add_numbers(w, out, "max", (struct onnx_dims){0}, &(float){6});
}

static void write_leaky_relu(struct writer *w, int i, struct onnx_node *out)
{
    const struct leaky_relu *s = w->graph->nodes[i].settings;
    add_float(out, "alpha", s->slope);
}

static void write_silu(struct writer *w, int i, struct onnx_node *out)
{
    struct onnx_node sigmoid = part_of(w, out, "Sigmoid", "sigmoid");
    out->inputs[out->input_count++] = out->inputs[0];
    write_part(w, &sigmoid, out);
}

static void write_gelu(struct writer *w, int i, struct onnx_node *out)
{
    const struct gelu *s = w->graph->nodes[i].settings;
    const char *approximate = s->approximate == GELU_TANH ? "tanh" : "none";
    out->opset = 20;
    add(out, (struct onnx_attribute){.name = "approximate", .type = ONNX_STRING, .text = approximate});
}

static void write_lrn(struct writer *w, int i, struct onnx_node *out)
{
    const struct lrn *s = w->graph->nodes[i].settings;
    if (s->size % 2 == 0)
        refuse(w, &w->graph->nodes[i], "ONNX and PyTorch have different windows for an even size");
    add_int(out, "size", s->size);
    add_float(out, "alpha", s->alpha);
    add_float(out, "beta", s->beta);
    add_float(out, "bias", s->k);
}

/* Pooling, padding and what only moves numbers. */

static void add_borders(struct writer *w, const int64_t before[3], const int64_t after[3],
                        struct onnx_node *pad)
{
    add_indices(w, pad, "pads", 8, (const int64_t[]){0, before[0], before[1], before[2],
                                                     0, after[0], after[1], after[2]});
}

/* Channels or tokens: the positions [first, end) of an axis. */
static void add_range(struct writer *w, struct onnx_node *slice, int64_t axis, int64_t first, int64_t end)
{
    add_indices(w, slice, "starts", 1, &first);
    add_indices(w, slice, "ends", 1, &end);
    add_indices(w, slice, "axes", 1, &axis);
}

/* Takes one of `stride` pixels along both axes of an image of h x w. */
static void add_grid(struct writer *w, struct onnx_node *slice, const int64_t first[2], int64_t h,
                     int64_t width, int64_t stride)
{
    add_indices(w, slice, "starts", 2, first);
    add_indices(w, slice, "ends", 2, (const int64_t[]){h, width});
    add_indices(w, slice, "axes", 2, (const int64_t[]){2, 3});
    add_indices(w, slice, "steps", 2, (const int64_t[]){stride, stride});
}

/* One axis of an average over bins, which may overlap, as a product with a matrix: from the left for rows. */
static void add_bins(struct writer *w, const struct pool_axis *a, bool rows, struct onnx_node *product)
{
    const char *x = product->inputs[0];
    float *share = memory_new((size_t)(a->in * a->out), sizeof *share);
    for (int64_t bin = 0; bin < a->out; bin++) {
        struct pool_span span = pool_inputs(a, bin);
        for (int64_t i = span.first; i < span.end; i++)
            share[rows ? bin * a->in + i : i * a->out + bin] = 1 / (float)(span.end - span.first);
    }
    struct onnx_dims dims = {2, {rows ? a->out : a->in, rows ? a->in : a->out}};
    product->input_count = rows ? 0 : 1;
    add_numbers(w, product, "bins", dims, share);
    if (rows) product->inputs[product->input_count++] = x;
    free(share);
}

static void write_bins(struct writer *w, const struct node *node, const struct pool_plane *plane,
                       struct onnx_node *out)
{
    if (node->op->saved)        /* where each maximum was */
        refuse(w, node, "ONNX supports it only if the input size is a multiple of the output size");
    struct onnx_node rows = part_of(w, out, "MatMul", "rows");
    out->op = "MatMul";
    add_bins(w, &plane->h, true, &rows);
    write_part(w, &rows, out);
    add_bins(w, &plane->w, false, out);
}

/* ceil_mode is expressed by padding behind the image, which averages never count. */
static void write_windows(struct writer *w, const struct pool_plane *plane, struct onnx_node *out)
{
    const struct pool_axis *axes[] = {&plane->h, &plane->w};
    int64_t kernel[2], stride[2], dilation[2], before[2], after[2];
    for (int k = 0; k < 2; k++) {
        const struct pool_axis *a = axes[k];
        kernel[k] = a->adaptive ? a->in / a->out : a->kernel;
        stride[k] = a->adaptive ? kernel[k] : a->stride;
        dilation[k] = a->adaptive ? 1 : a->dilation;
        before[k] = a->adaptive ? 0 : a->pad;
        int64_t reach = (a->out - 1) * stride[k] + dilation[k] * (kernel[k] - 1) + 1;
        after[k] = MAX(before[k], reach - a->in - before[k]);
    }
    if (plane->count_padding && before[0] + before[1] > 0) {
        struct onnx_node pad = part_of(w, out, "Pad", "pad");
        const int64_t around[] = {0, before[0], before[1]};
        add_borders(w, around, around, &pad);
        write_part(w, &pad, out);
        for (int k = 0; k < 2; k++) after[k] -= before[k], before[k] = 0;
    }
    add_pair(out, "kernel_shape", kernel);
    add_pair(out, "strides", stride);
    add_pads(out, before, after);
    if (dilation[0] > 1 || dilation[1] > 1) add_pair(out, "dilations", dilation);
}

static void write_pool(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    struct tensor x;
    struct call call = call_of(w, node, &x);
    struct pool_plane plane = rule_of(node->op)->plane(&call);
    bool bins = plane.h.adaptive && (plane.h.in % plane.h.out != 0 || plane.w.in % plane.w.out != 0);
    if (plane.h.adaptive && plane.h.in == plane.h.out && plane.w.in == plane.w.out)
        w->values[i] = out->inputs[0];
    else if (bins)
        write_bins(w, node, &plane, out);
    else
        write_windows(w, &plane, out);
}

static void write_border(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    struct tensor x;
    struct call call = call_of(w, node, &x);
    struct border b = rule_of(node->op)->border(&call);
    struct onnx_node slice = part_of(w, out, "Slice", "slice");
    if (b.stride > 1) {
        add_grid(w, &slice, (const int64_t[]){0, 0}, x.shape.h, x.shape.w, b.stride);
        write_part(w, &slice, out);
    }
    const int64_t before[] = {b.front, b.top, b.left};
    const int64_t after[] = {node->shape.c - b.front - x.shape.c,
                             node->shape.h - b.top - ((x.shape.h - 1) / b.stride + 1),
                             node->shape.w - b.left - ((x.shape.w - 1) / b.stride + 1)};
    add_borders(w, before, after, out);
}

static void write_slice(struct writer *w, int i, struct onnx_node *out)
{
    const struct slice *s = w->graph->nodes[i].settings;
    add_range(w, out, 1, s->first, s->first + s->channels);
}

/* groups x channels of each, transposed. */
static void write_channel_shuffle(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    const struct channel_shuffle *s = node->settings;
    struct onnx_node split = part_of(w, out, "Reshape", "split"), swap = part_of(w, out, "Transpose", "swap");
    add_indices(w, &split, "shape", 4, (const int64_t[]){0, s->groups, node->shape.c / s->groups, -1});
    write_part(w, &split, &swap);
    add_order(&swap, 4, (const int64_t[]){0, 2, 1, 3});
    write_part(w, &swap, out);
    add_indices(w, out, "shape", 4, (const int64_t[]){0, node->shape.c, node->shape.h, node->shape.w});
}

/* A factor by which `in` becomes `out`, although readers round the product down. */
static float resize_factor(int64_t in, int64_t out)
{
    float factor = (float)out / (float)in;
    while ((int64_t)((float)in * factor) < out) factor = nextafterf(factor, INFINITY);
    return factor;
}

/* The value of a layer; NULL: none that was written, with pixels. */
static const char *value_named(const struct writer *w, const char *name)
{
    for (int i = 0; i < w->graph->count; i++)
        if (strcmp(w->graph->nodes[i].name, name) == 0) return w->ranks[i] == 4 ? w->values[i] : NULL;
    return NULL;
}

/* Inputs of Resize: no factors, but images and channels of its input, height and width of that layer. */
static bool add_size_like(struct writer *w, int i, struct onnx_node *out)
{
    const char *layer = w->graph->nodes[i].like, *like = NULL;
    if (w->options->pixels && layer) like = value_named(w, layer);
    if (!like) return false;
    struct onnx_node join = part_of(w, out, "Concat", "sizes");
    static const char *const parts[][2] = {{"shape", "images"}, {"like", "pixels"}};
    join.input_count = 2;
    for (int k = 0; k < 2; k++) {
        struct onnx_node shape = part_of(w, out, "Shape", parts[k][0]);
        struct onnx_node part = part_of(w, out, "Slice", parts[k][1]);
        if (k) shape.inputs[0] = like;
        shape.input_count = 1;
        onnx_node(w->onnx, &shape);
        part.inputs[0] = shape.name;
        part.input_count = 1;
        add_range(w, &part, 0, 2 * k, 2 * k + 2);
        onnx_node(w->onnx, &part);
        join.inputs[k] = part.name;
    }
    add_int(&join, "axis", 0);
    onnx_node(w->onnx, &join);
    out->inputs[out->input_count++] = "";
    out->inputs[out->input_count++] = join.name;
    return true;
}

static void write_upsample(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    const struct upsample *s = node->settings;
    const struct shape *x = &w->graph->nodes[node->inputs[0]].shape;
    const float factors[] = {1, 1, resize_factor(x->h, node->shape.h), resize_factor(x->w, node->shape.w)};
    const char *name = name_new(w, node->name, "scales");
    bool linear = s->mode == UPSAMPLE_BILINEAR;
    const char *place = !linear ? "asymmetric" : s->align_corners ? "align_corners" : "half_pixel";
    out->inputs[out->input_count++] = "";
    if (s->scale > 0 || !add_size_like(w, i, out)) {
        out->inputs[out->input_count++] = name;
        onnx_tensor(w->onnx, name, F32, (struct onnx_dims){1, {4}}, factors);
    }
    add(out, (struct onnx_attribute){.name = "mode", .type = ONNX_STRING,
                                     .text = linear ? "linear" : "nearest"});
    add(out, (struct onnx_attribute){.name = "coordinate_transformation_mode", .type = ONNX_STRING,
                                     .text = place});
    if (!linear) add(out, (struct onnx_attribute){.name = "nearest_mode", .type = ONNX_STRING,
                                                  .text = "floor"});
}

/* Tokens: values of n, c, tokens, 1. */

/* A parameter that has a row of channels for each token, channel by channel; `behind` rows of zeros more. */
static void add_tokens(struct writer *w, const struct node *node, int64_t behind, struct onnx_node *out)
{
    int64_t channels = node->shape.c, tokens = node->shape.h * node->shape.w, learned = tokens - behind;
    float *rows = param_read(w, node, 0);
    float *values = memory_new((size_t)(tokens * channels), sizeof *values);
    for (int64_t t = 0; t < learned; t++)
        for (int64_t c = 0; c < channels; c++) values[c * tokens + t] = rows[t * channels + c];
    add_numbers(w, out, "tokens", (struct onnx_dims){4, {1, channels, node->shape.h, node->shape.w}}, values);
    free(values);
    free(rows);
}

/* Its pixels one below another, if they are not. */
static void write_as_tokens(struct writer *w, const struct node *node, struct onnx_node *out)
{
    const struct shape *x = &w->graph->nodes[node->inputs[0]].shape;
    struct onnx_node flat = part_of(w, out, "Reshape", "flat");
    if (x->w == 1) return;
    add_indices(w, &flat, "shape", 4, (const int64_t[]){0, x->c, x->h * x->w, 1});
    write_part(w, &flat, out);
}

static void write_prepend(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    const struct prepend *s = node->settings;
    struct onnx_node room = part_of(w, out, "Pad", "room");
    write_as_tokens(w, node, &room);
    add_borders(w, (const int64_t[]){0, s->count, 0}, (const int64_t[]){0, 0, 0}, &room);
    write_part(w, &room, out);
    add_tokens(w, node, node->shape.h - s->count, out);
}

static void write_position(struct writer *w, int i, struct onnx_node *out)
{
    add_tokens(w, &w->graph->nodes[i], 0, out);
}

static void write_token_pool(struct writer *w, int i, struct onnx_node *out)
{
    const struct node *node = &w->graph->nodes[i];
    const struct token_pool *s = node->settings;
    const struct shape *x = &w->graph->nodes[node->inputs[0]].shape;
    bool mean = s->mode == TOKEN_POOL_MEAN;
    struct onnx_node slice = part_of(w, out, "Slice", "counted");
    struct onnx_node *last = mean ? &slice : out;
    write_as_tokens(w, node, last);
    add_range(w, last, 2, mean ? s->prefix : 0, mean ? x->h * x->w : 1);
    if (mean) write_part(w, &slice, out);
    if (mean) out->op = "GlobalAveragePool";
}

static void write_token_slice(struct writer *w, int i, struct onnx_node *out)
{
    const struct token_slice *s = w->graph->nodes[i].settings;
    write_as_tokens(w, &w->graph->nodes[i], out);
    add_range(w, out, 2, s->first, s->first + s->count);
}

static void write_patch_merge(struct writer *w, int i, struct onnx_node *out)
{
    static const char *const quarters[] = {"quarter0", "quarter1", "quarter2", "quarter3"};
    const struct node *node = &w->graph->nodes[i];
    const struct shape *x = &w->graph->nodes[node->inputs[0]].shape;
    struct onnx_node even = part_of(w, out, "Pad", "even");
    if (x->h % 2 || x->w % 2) {
        add_borders(w, (const int64_t[]){0, 0, 0}, (const int64_t[]){0, x->h % 2, x->w % 2}, &even);
        write_part(w, &even, out);
    }
    const char *from = out->inputs[0];
    for (int q = 0; q < 4; q++) {
        struct onnx_node slice = part_of(w, out, "Slice", quarters[q]);
        slice.inputs[0] = from;
        add_grid(w, &slice, (const int64_t[]){q % 2, q / 2}, x->h + x->h % 2, x->w + x->w % 2, 2);
        onnx_node(w->onnx, &slice);
        out->inputs[q] = slice.name;
    }
    out->input_count = 4;
    add_int(out, "axis", 1);
}

/* Runtimes have integer code for Add alone. */
static void write_add(struct writer *w, int i, struct onnx_node *out)
{
    if (out->input_count == 2) out->op = "Add";
}

static void write_concat(struct writer *w, int i, struct onnx_node *out)
{
    add_int(out, "axis", 1);
}

static void write_flatten(struct writer *w, int i, struct onnx_node *out)
{
    bool flat = w->ranks[i] == 2;
    w->ranks[i] = 2;
    if (flat) w->values[i] = out->inputs[0];
}

static void write_nothing(struct writer *w, int i, struct onnx_node *out)
{
    w->values[i] = out->inputs[0];
}

#define RULE(op_, onnx_, ...) {.op = #op_, .onnx = #onnx_, __VA_ARGS__}
static const struct rule rules[] = {
    RULE(conv, Conv, .rank = 4, .write = write_conv),
    RULE(conv_transpose, ConvTranspose, .rank = 4, .write = write_conv_transpose),
    RULE(linear, Gemm, .write = write_linear),
    RULE(batchnorm, BatchNormalization, .write = write_batchnorm),
    RULE(layernorm, Transpose, .rank = 4, .write = write_layernorm),
    RULE(groupnorm, Add, .rank = 4, .write = write_groupnorm),
    RULE(instancenorm, InstanceNormalization, .rank = 4, .write = write_instancenorm),
    RULE(grn, Add, .rank = 4, .write = write_grn),
    RULE(attention, Reshape, .rank = 4, .write = write_attention),
    RULE(scale, Mul, .rank = 4, .write = write_scale),
    RULE(relu, Relu),
    RULE(relu6, Clip, .write = write_relu6),
    RULE(leaky_relu, LeakyRelu, .write = write_leaky_relu),
    RULE(silu, Mul, .write = write_silu),
    RULE(gelu, Gelu, .write = write_gelu),
    RULE(sigmoid, Sigmoid),
    RULE(hardsigmoid, HardSigmoid, .write = write_hardsigmoid),
    RULE(hardswish, HardSwish),
    RULE(maxpool, MaxPool, .rank = 4, .write = write_pool, .plane = pool_sliding),
    RULE(avgpool, AveragePool, .rank = 4, .write = write_pool, .plane = pool_sliding),
    RULE(globalavgpool, GlobalAveragePool, .rank = 4),
    RULE(adaptive_avgpool, AveragePool, .rank = 4, .write = write_pool, .plane = pool_bins),
    RULE(adaptive_maxpool, MaxPool, .rank = 4, .write = write_pool, .plane = pool_bins),
    RULE(add, Sum, .write = write_add),
    RULE(mean, Mean),
    RULE(multiply, Mul),
    RULE(concat, Concat, .write = write_concat),
    RULE(slice, Slice, .rank = 4, .write = write_slice),
    RULE(channel_shuffle, Reshape, .rank = 4, .write = write_channel_shuffle),
    RULE(upsample, Resize, .rank = 4, .write = write_upsample),
    RULE(dropout, Identity, .write = write_nothing),
    RULE(drop_path, Identity, .write = write_nothing),
    RULE(flatten, Flatten, .write = write_flatten),
    RULE(pad, Pad, .rank = 4, .write = write_border, .border = pad_border),
    RULE(channel_pad, Pad, .rank = 4, .write = write_border, .border = channel_pad_border),
    RULE(lrn, LRN, .rank = 4, .write = write_lrn),
    RULE(prepend, Add, .rank = 4, .write = write_prepend),
    RULE(position, Add, .rank = 4, .write = write_position),
    RULE(token_pool, Slice, .rank = 4, .write = write_token_pool),
    RULE(token_slice, Slice, .rank = 4, .write = write_token_slice),
    RULE(patch_merge, Concat, .rank = 4, .write = write_patch_merge),
};

/* Rules whose operators have sizes of the network's own images. */
static const char *const sized[] = {
    "attention", "adaptive_avgpool", "adaptive_maxpool", "channel_shuffle", "flatten", "linear", "prepend",
    "position", "token_pool", "token_slice", "patch_merge",
};

static const struct rule *rule_of(const struct op *op)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].op, op->name) == 0) return &rules[i];
    return NULL;
}

bool graph_onnx_has(const struct op *op)
{
    return rule_of(op) != NULL;
}

/* The graph. */

/* Node `from` as input k of node `reader`, in this rank. */
static const char *input_of(struct writer *w, const struct node *reader, int k, int rank)
{
    int from = reader->inputs[k];
    if (w->ranks[from] == rank) return w->values[from];
    char part[32];
    snprintf(part, sizeof part, "input%d", k);
    struct onnx_node node = {.op = rank == 2 ? "Flatten" : "Reshape", .name = name_new(w, reader->name, part),
                             .input_count = 1, .inputs = {w->values[from]}};
    if (rank == 4) add_indices(w, &node, "shape", 4, (const int64_t[]){0, 0, 1, 1});
    onnx_node(w->onnx, &node);
    return node.name;
}

/* The value of a node becomes bytes and floats again; runtimes compute with the bytes between two of these
 * pairs. */
static void write_rounding(struct writer *w, int i)
{
    const struct node *node = &w->graph->nodes[i];
    bool largest = i > 0 && strcmp(node->op->name, "maxpool") == 0 && w->scales[node->inputs[0]] > 0;
    struct graph_onnx_range range = w->options->ranges[largest ? node->inputs[0] : i];
    if (!w->rounded[i] || !(range.high > range.low)) return;
    const float scale = (float)((range.high - range.low) / UINT8_MAX);
    const uint8_t zero = (uint8_t)lround(-range.low / scale);
    struct onnx_node bytes = {.op = "QuantizeLinear", .name = name_new(w, node->name, "rounded"),
                              .input_count = 3, .inputs = {w->values[i]}};
    struct onnx_node floats = {.op = "DequantizeLinear", .name = name_new(w, node->name, "restored"),
                               .input_count = 3, .inputs = {bytes.name}};
    floats.inputs[1] = bytes.inputs[1] = name_new(w, node->name, "step");
    floats.inputs[2] = bytes.inputs[2] = name_new(w, node->name, "zero");
    onnx_tensor(w->onnx, bytes.inputs[1], F32, (struct onnx_dims){0}, &scale);
    onnx_tensor(w->onnx, bytes.inputs[2], U8, (struct onnx_dims){0}, &zero);
    onnx_node(w->onnx, &bytes);
    onnx_node(w->onnx, &floats);
    w->values[i] = floats.name;
    w->scales[i] = scale;
}

static void write_layer(struct writer *w, int i)
{
    const struct node *node = &w->graph->nodes[i];
    const struct rule *rule = rule_of(node->op);
    if (!rule || node->input_count + 2 > ONNX_INPUTS) {
        refuse(w, node, "cannot be exported to ONNX");
        return;
    }
    bool taken = strcmp(node->name, "logits") == 0 || strcmp(node->name, "probabilities") == 0 ||
                 strcmp(node->name, "value") == 0 || strcmp(node->name, "classes") == 0;
    struct onnx_node out = {.op = rule->onnx, .name = taken ? name_new(w, node->name, "layer") : node->name,
                            .input_count = node->input_count};
    w->values[i] = out.name;
    w->ranks[i] = rule->rank ? rule->rank : w->ranks[node->inputs[0]];
    for (int k = 0; k < node->input_count; k++) out.inputs[k] = input_of(w, node, k, w->ranks[i]);
    if (rule->write) rule->write(w, i, &out);
    int from = node->inputs[0];
    bool own = w->values[i] == out.name;
    if (own) onnx_node(w->onnx, &out);
    if (w->options->ranges && (own || w->folded[from] == i)) write_rounding(w, i);
    else w->scales[i] = w->scales[from];
}

/* The nodes that lead to the output. */
static bool *nodes_needed(const struct graph *graph)
{
    bool *needed = memory_new((size_t)graph->count, sizeof *needed);
    needed[graph->output] = true;
    for (int i = graph->output; i > 0; i--)
        for (int k = 0; needed[i] && k < graph->nodes[i].input_count; k++)
            needed[graph->nodes[i].inputs[k]] = true;
    return needed;
}

const char *graph_onnx_fixed(const struct graph *graph)
{
    bool *needed = nodes_needed(graph);
    const char *found = NULL;
    for (int i = 1; i < graph->count && !found; i++)
        for (size_t k = 0; needed[i] && k < sizeof sized / sizeof *sized; k++)
            if (strcmp(graph->nodes[i].op->name, sized[k]) == 0) found = graph->nodes[i].name;
    free(needed);
    return found;
}

static bool is_one_of(const struct node *node, const char *const *names)
{
    int i = 0;
    while (node->op && names[i] && strcmp(names[i], node->op->name) != 0) i++;
    return node->op && names[i] != NULL;
}

/* Outputs and inputs of these are rounded, but a convolution's behind its batch norm and its relu, which
 * runtimes make part of the rounding. */
static void find_rounded(struct writer *w)
{
    static const char *const integers[] = {"conv", "linear", "add", "concat", "maxpool", "avgpool",
                                           "globalavgpool", "adaptive_avgpool", NULL};
    static const char *const clips[] = {"relu", "relu6", NULL};
    const struct graph *graph = w->graph;
    int *readers = memory_new((size_t)graph->count, sizeof *readers);
    int *clipped = memory_new((size_t)graph->count, sizeof *clipped);
    for (int i = 0; i < graph->count && w->options->ranges; i++) {
        const struct node *node = &graph->nodes[i];
        bool integer = is_one_of(node, integers);
        w->rounded[i] = w->rounded[i] || integer;
        for (int k = 0; k < node->input_count; k++) {
            int from = node->inputs[k];
            readers[from]++;
            clipped[from] += is_one_of(node, clips);
            w->rounded[from] = w->rounded[from] || integer;
            if (w->folded[from] == i) w->rounded[i] = true;
        }
    }
    for (int i = 0; i < graph->count; i++)
        if (w->folded[i] || i == graph->output || (readers[i] == 1 && clipped[i] == 1)) w->rounded[i] = false;
    free(readers);
    free(clipped);
}

/* Node 0 is the input; in fp16 it is converted, and so is the output. */
static void write_cast(struct writer *w, const char *from, const char *to, enum dtype dtype)
{
    bool half = w->options->dtype == F16;
    struct onnx_node cast = {.op = half ? "Cast" : "Identity", .name = to, .input_count = 1,
                             .inputs = {from}};
    if (half) add_int(&cast, "to", dtype == F16 ? 10 : 1);
    onnx_node(w->onnx, &cast);
}

/* A number a channel, in fp32. */
static const char *write_channels(struct writer *w, const char *part, const double *mean, const double *std)
{
    int64_t channels = w->graph->nodes[0].shape.c;
    const char *name = name_new(w, "input", part);
    float *values = memory_new((size_t)channels, sizeof *values);
    for (int64_t k = 0; k < channels; k++) values[k] = (float)(mean ? -mean[k] / std[k] : 1 / (255 * std[k]));
    onnx_tensor(w->onnx, name, F32, (struct onnx_dims){3, {channels, 1, 1}}, values);
    free(values);
    return name;
}

/* Normalises bytes, whose channels are innermost; images of any size are brought to the network's first. */
static const char *write_preprocessing(struct writer *w)
{
    const struct augment *augment = w->options->preprocess;
    const struct image_size window = {(int)w->graph->nodes[0].shape.h, (int)w->graph->nodes[0].shape.w};
    struct onnx_node floats = {.op = "Cast", .name = name_new(w, "input", "floats"), .input_count = 1,
                               .inputs = {"input"}};
    struct onnx_node planes = {.op = "Transpose", .name = name_new(w, "input", "planes"), .input_count = 1,
                               .inputs = {floats.name}};
    struct onnx_node scaled = {.op = "Mul", .name = name_new(w, "input", "scaled"), .input_count = 2,
                               .inputs = {planes.name, write_channels(w, "scale", NULL, augment->std)}};
    const struct onnx_node shifted = {
        .op = "Add", .name = name_new(w, "input", "normalised"), .input_count = 2,
        .inputs = {scaled.name, write_channels(w, "offset", augment->mean, augment->std)}};
    add_int(&floats, "to", 1);
    add_order(&planes, 4, (const int64_t[]){0, 3, 1, 2});
    onnx_node(w->onnx, &floats);
    onnx_node(w->onnx, &planes);
    if (!w->options->pixels) scaled.inputs[0] = onnx_geometry(w->onnx, augment, window, planes.name);
    onnx_node(w->onnx, &scaled);
    onnx_node(w->onnx, &shifted);
    return shifted.name;
}

static void write_input(struct writer *w)
{
    struct shape s = w->graph->nodes[0].shape;
    bool raw = w->options->preprocess != NULL;
    bool fixed = w->options->pixels ? graph_onnx_fixed(w->graph) != NULL : !raw;
    int64_t h = fixed ? s.h : ONNX_HEIGHT, width = fixed ? s.w : ONNX_WIDTH;
    const struct onnx_dims bytes = {4, {0, h, width, s.c}}, floats = {4, {0, s.c, h, width}};
    onnx_value(w->onnx, ONNX_INPUT, "input", raw ? U8 : F32, raw ? bytes : floats);
    w->values[0] = raw ? write_preprocessing(w) : "input";
    w->ranks[0] = 4;
    if (w->options->ranges) write_rounding(w, 0);
    if (w->options->dtype != F16) return;
    const char *half = name_new(w, "input", "half");
    write_cast(w, w->values[0], half, F16);
    w->values[0] = half;
}

static void write_unit(struct writer *w, const char *name)
{
    const float scale = (float)w->options->scale, offset = (float)w->options->offset;
    const struct onnx_dims one = {1, {1}};
    onnx_tensor(w->onnx, "value scale", F32, one, &scale);
    onnx_tensor(w->onnx, "value offset", F32, one, &offset);
    onnx_node(w->onnx, &(struct onnx_node){.op = "Mul", .name = "scaled value", .input_count = 2,
                                           .inputs = {"logits", "value scale"}});
    onnx_node(w->onnx, &(struct onnx_node){.op = "Add", .name = name, .input_count = 2,
                                           .inputs = {"scaled value", "value offset"}});
}

/* The class of every pixel, the first of those that are as probable. */
static void write_classes(struct writer *w)
{
    struct onnx_node best = {.op = "ArgMax", .name = name_new(w, "output", "best"), .input_count = 1,
                             .inputs = {"logits"}};
    struct onnx_node bytes = {.op = "Cast", .name = "classes", .input_count = 1, .inputs = {best.name}};
    add_int(&best, "axis", 1);
    add_int(&best, "keepdims", 0);
    add_int(&bytes, "to", 2);
    onnx_node(w->onnx, &best);
    onnx_node(w->onnx, &bytes);
}

static void write_pixels(struct writer *w)
{
    const struct node ends[] = {{.name = "output", .inputs = &(int){w->graph->output}}};
    const struct graph_onnx_options *options = w->options;
    const struct shape x = w->graph->nodes[0].shape, y = w->graph->nodes[w->graph->output].shape;
    bool same = x.h == y.h && x.w == y.w, fixed = graph_onnx_fixed(w->graph);
    int64_t h = fixed ? y.h : same ? ONNX_HEIGHT : ONNX_OUTPUT_HEIGHT;
    int64_t width = fixed ? y.w : same ? ONNX_WIDTH : ONNX_OUTPUT_WIDTH;
    const struct onnx_dims each = {4, {0, y.c, h, width}}, one = {3, {0, h, width}};
    struct onnx_node last = {.op = "Softmax", .name = "probabilities", .input_count = 1,
                             .inputs = {"logits"}};
    write_cast(w, input_of(w, ends, 0, 4), "logits", F32);
    if (options->softmax) add_int(&last, "axis", 1);
    if (options->softmax) onnx_node(w->onnx, &last);
    if (options->argmax) write_classes(w);
    if (options->argmax) onnx_value(w->onnx, ONNX_OUTPUT, "classes", U8, one);
    else onnx_value(w->onnx, ONNX_OUTPUT, options->softmax ? last.name : "logits", F32, each);
}

static void write_output(struct writer *w)
{
    const struct node ends[] = {{.name = "output", .inputs = &(int){w->graph->output}}};
    const struct graph_onnx_options *options = w->options;
    bool probabilities = options->softmax || options->sigmoid;
    const char *name = probabilities ? "probabilities" : options->scales ? "value" : "logits";
    const char *flat = input_of(w, ends, 0, 2);
    struct onnx_node last = {.op = options->sigmoid ? "Sigmoid" : "Softmax", .name = name, .input_count = 1,
                             .inputs = {"logits"}};
    write_cast(w, flat, "logits", F32);
    if (options->softmax) add_int(&last, "axis", 1);
    if (probabilities) onnx_node(w->onnx, &last);
    if (options->scales) write_unit(w, name);
    onnx_value(w->onnx, ONNX_OUTPUT, name, F32, (struct onnx_dims){2, {0, w->graph->classes}});
}

enum status graph_onnx(const struct graph *graph, const struct graph_onnx_options *options, struct onnx *onnx)
{
    size_t count = (size_t)graph->count;
    struct writer w = {
        .graph = graph, .options = options, .onnx = onnx, .values = memory_new(count, sizeof *w.values),
        .ranks = memory_new(count, sizeof *w.ranks), .folded = memory_new(count, sizeof *w.folded),
        .rounded = memory_new(count, sizeof *w.rounded), .scales = memory_new(count, sizeof *w.scales),
    };
    bool *needed = nodes_needed(graph);
    if (!options->keep_batchnorm) batchnorm_fold_find(graph, w.folded);
    find_rounded(&w);
    write_input(&w);
    for (int i = 1; i < graph->count && w.status == OK; i++)
        if (needed[i]) write_layer(&w, i);
    if (w.status == OK) (options->pixels ? write_pixels : write_output)(&w);
    for (int i = 0; i < w.name_count; i++) free(w.names[i]);
    free(w.names);
    free(w.values);
    free(w.ranks);
    free(w.folded);
    free(w.rounded);
    free(w.scales);
    free(needed);
    return w.status;
}
