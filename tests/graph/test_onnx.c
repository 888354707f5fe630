/* ONNX files: all that the format asks of a graph, read back without a library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "graph/graph_onnx.h"
#include "graph/model.h"
#include "tests/support/unit.h"

static const char path[] = "test_onnx.onnx";

/* A message, read member by member: a number, or `length` bytes. */
struct reader {
    const uint8_t *at, *end;
};
struct member {
    int number;
    uint64_t value;
    struct reader bytes;
};

static uint64_t read_varint(struct reader *reader)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(reader->at < reader->end && shift < 64);
        uint8_t byte = *reader->at++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
}

static bool read_member(struct reader *reader, struct member *member)
{
    if (reader->at == reader->end) return false;
    uint64_t tag = read_varint(reader);
    *member = (struct member){.number = (int)(tag >> 3)};
    assert_true((tag & 7) == 0 || (tag & 7) == 2 || (tag & 7) == 5);
    if ((tag & 7) == 0) {
        member->value = read_varint(reader);
        return true;
    }
    uint64_t length = (tag & 7) == 2 ? read_varint(reader) : 4;
    assert_true(length <= (uint64_t)(reader->end - reader->at));
    member->bytes = (struct reader){reader->at, reader->at + length};
    reader->at += length;
    return true;
}

static char *text_of(struct reader bytes)
{
    return text_format("%.*s", (int)(bytes.end - bytes.at), (const char *)bytes.at);
}

/* All that is said of a model. */
struct model {
    char *names[400];            /* of values that are there so far */
    int name_count;
    int norms, casts, opset;
    int rounded, integers;       /* QuantizeLinear; bytes of tensors of 8 bits */
    size_t weights;              /* bytes of tensors */
    int fixed, free;             /* sides of the input */
    char *last;                  /* the last node's output */
    char output[16];
};

static bool has_name(const struct model *model, const char *name)
{
    for (int i = 0; i < model->name_count; i++)
        if (strcmp(model->names[i], name) == 0) return true;
    return false;
}

static void add_name(struct model *model, struct reader bytes)
{
    char *name = text_of(bytes);
    if (has_name(model, name)) fail_msg("%s twice", name);
    assert_true(model->name_count < 400);
    model->names[model->name_count++] = name;
    model->last = name;
}

static void read_node(struct model *model, struct reader node)
{
    struct member member;
    while (read_member(&node, &member)) {
        char *text = text_of(member.bytes);
        bool absent = text[0] == '\0';      /* an optional input */
        if (member.number == 1 && !absent && !has_name(model, text))
            fail_msg("%s is read before it is there", text);
        if (member.number == 2) add_name(model, member.bytes);
        if (member.number == 4) model->norms += strcmp(text, "BatchNormalization") == 0;
        if (member.number == 4) model->rounded += strcmp(text, "QuantizeLinear") == 0;
        if (member.number == 4) model->casts += strcmp(text, "Cast") == 0;
        free(text);
    }
}

static void read_tensor(struct model *model, struct reader tensor)
{
    static const int sizes[] = {[1] = 4, [2] = 1, [3] = 1, [6] = 4, [7] = 8, [10] = 2, [11] = 8};
    uint64_t bytes = 1, raw = 0;
    bool small = false;
    struct member member;
    while (read_member(&tensor, &member)) {
        if (member.number == 1) bytes *= member.value;
        if (member.number == 2) bytes *= (uint64_t)sizes[member.value];
        if (member.number == 2) small = member.value == 3;
        if (member.number == 8) add_name(model, member.bytes);
        if (member.number == 9) raw = (uint64_t)(member.bytes.end - member.bytes.at);
    }
    assert_int_equal(raw, bytes);
    model->weights += raw;
    model->integers += small ? (int)raw : 0;
}

/* The dimensions of the input: each a number or a name. */
static void read_input(struct model *model, struct reader value)
{
    struct member type, tensor, shape, dim, of;
    while (read_member(&value, &type))
        while (type.number == 2 && read_member(&type.bytes, &tensor))
            while (tensor.number == 1 && read_member(&tensor.bytes, &shape))
                while (shape.number == 2 && read_member(&shape.bytes, &dim))
                    while (dim.number == 1 && read_member(&dim.bytes, &of))
                        *(of.number == 1 ? &model->fixed : &model->free) += 1;
}

static void read_graph(struct model *model, struct reader graph)
{
    struct member member, value;
    while (read_member(&graph, &member)) {
        if (member.number == 1) read_node(model, member.bytes);
        if (member.number == 5) read_tensor(model, member.bytes);
        if (member.number == 11) read_input(model, member.bytes);
        if (member.number != 11 && member.number != 12) continue;
        assert_true(read_member(&member.bytes, &value) && value.number == 1);
        char *name = text_of(value.bytes);
        if (member.number == 11) add_name(model, value.bytes);
        else assert_string_equal(name, model->last);
        snprintf(model->output, sizeof model->output, "%s", name);
        free(name);
    }
}

static struct model read_model(void)
{
    struct model model = {.opset = 0};
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = memory_new(1, 1 << 22);
    size_t count = fread(bytes, 1, 1 << 22, file);
    fclose(file);
    struct reader reader = {bytes, bytes + count};
    struct member member, inner;
    while (read_member(&reader, &member)) {
        if (member.number == 7) read_graph(&model, member.bytes);
        while (member.number == 8 && read_member(&member.bytes, &inner)) model.opset = (int)inner.value;
    }
    free(bytes);
    for (int i = 0; i < model.name_count; i++) free(model.names[i]);
    unlink(path);
    return model;
}

static enum status read_large(void *context, int param, float *values)
{
    const struct graph *graph = context;
    for (int64_t i = 0; i < shape_count(graph->params[param].spec.shape); i++) values[i] = 70000;
    return OK;
}

static enum status read_small(void *context, int param, float *values)
{
    const struct graph *graph = context;
    for (int64_t i = 0; i < shape_count(graph->params[param].spec.shape); i++) values[i] = 0.25f;
    return OK;
}

static enum status write_model(struct graph *graph, struct graph_onnx_options options)
{
    struct onnx onnx;
    if (!options.read) options.read = read_small;
    options.context = graph;
    assert_int_equal(onnx_open(path, graph->arch, &onnx), OK);
    enum status status = graph_onnx(graph, &options, &onnx);
    onnx_end(&onnx);
    onnx_metadata(&onnx, "classes", "[]");
    assert_int_equal(onnx_close(&onnx, true), OK);
    return status;
}

static struct graph every_op(void)
{
    struct graph graph;
    const struct model_options options = {.file = SOURCEDIR "/tests/graph/onnx_every.ini", .dropout = -1};
    assert_int_equal(model_load(&options, &graph), OK);
    return graph;
}

static struct graph layers(const char *text)
{
    struct graph graph;
    const struct model_options options = {.dropout = -1};
    assert_int_equal(model_load_text(&options, "model", text, &graph), OK);
    return graph;
}

static void every_op_of_model_files_can_be_exported(void **state)
{
    struct graph graph = every_op();
    for (int i = 0; op_table[i]; i++) {
        bool there = false;
        for (int j = 1; j < graph.count; j++) there = there || graph.nodes[j].op == op_table[i];
        if (op_table[i]->internal) continue;
        if (!graph_onnx_has(op_table[i]))
            fail_msg("%s is not in the table of graph_onnx.c", op_table[i]->name);
        if (!there && strcmp(op_table[i]->name, "globalavgpool") != 0)
            fail_msg("%s is not in onnx_every.ini", op_table[i]->name);
    }
    graph_free(&graph);
}

static void graphs_are_whole(void **state)
{
    struct graph graph = every_op();
    assert_int_equal(write_model(&graph, (struct graph_onnx_options){.dtype = F32}), OK);
    struct model model = read_model();
    assert_int_equal(model.norms, 2);
    assert_int_equal(model.casts, 0);
    assert_int_equal(model.opset, 20);       /* of Gelu */
    size_t bytes = model.weights;
    const struct graph_onnx_options unfolded = {.dtype = F32, .keep_batchnorm = true};
    assert_int_equal(write_model(&graph, unfolded), OK);
    assert_int_equal(read_model().norms, 4);
    assert_int_equal(write_model(&graph, (struct graph_onnx_options){.dtype = F16, .softmax = true}), OK);
    model = read_model();
    assert_int_equal(model.casts, 2);
    assert_true(model.weights < bytes * 6 / 10);
    graph_free(&graph);
}

#define INPUT "[input]\nchannels = 4\nsize = 5\n[layers]\n"

static void opset_is_the_oldest_that_does(void **state)
{
    struct graph graph = layers(INPUT "a = relu input\nb = globalavgpool a\nc = linear b units=$classes\n");
    assert_int_equal(write_model(&graph, (struct graph_onnx_options){.dtype = F32}), OK);
    assert_int_equal(read_model().opset, 17);
    graph_free(&graph);
}

static void preprocessing_takes_images_of_any_size(void **state)
{
    struct graph graph = layers(INPUT "a = relu input\nb = globalavgpool a\nc = linear b units=$classes\n");
    struct augment augment = {.channels = 4, .std = {1, 1, 1, 1}};
    const struct graph_onnx_options options = {.dtype = F32, .preprocess = &augment};
    assert_int_equal(write_model(&graph, (struct graph_onnx_options){.dtype = F32}), OK);
    assert_int_equal(read_model().free, 1);
    for (int i = 0; i < 4; i++) {
        augment.fit = i < 2 ? IMAGE_FIT_CROP : i < 3 ? IMAGE_FIT_LETTERBOX : IMAGE_FIT_STRETCH;
        augment.val_resize = image_size_square(i == 0 ? 0 : 6);
        assert_int_equal(write_model(&graph, options), OK);
        struct model model = read_model();
        assert_int_equal(model.free, 3);
        assert_int_equal(model.fixed, 1);
        assert_int_equal(model.opset, 17);
    }
    graph_free(&graph);
}

/* A convolution with batch norm and relu, an addition with relu, pooling and a linear layer: their inputs are
 * rounded once each, and weights and zeros are of 8 bits. */
static void eight_bits_are_rounded_behind_relus(void **state)
{
    struct graph graph = layers(INPUT "a = conv input filters=6 kernel=3 pad=1 bias=no\nb = batchnorm a\n"
                                "c = relu b\nd = conv c filters=6 kernel=1\ne = add d c\nf = relu e\n"
                                "g = globalavgpool f\nh = linear g units=$classes\n");
    const int classes = graph.classes;
    struct graph_onnx_range ranges[9];
    for (int i = 0; i < 9; i++) ranges[i] = (struct graph_onnx_range){i == 0 ? -2 : 0, 4};
    assert_int_equal(graph.count, 9);
    assert_int_equal(write_model(&graph, (struct graph_onnx_options){.dtype = F32, .ranges = ranges}), OK);
    struct model model = read_model();
    assert_int_equal(model.rounded, 5);        /* input, c, d, f, g */
    assert_int_equal(model.norms, 0);
    assert_int_equal(model.integers, 6 * 4 * 9 + 6 + 6 * 6 + 6 + classes * 7);
    const struct augment augment = {.channels = 4, .std = {1, 1, 1, 1}};
    assert_int_equal(write_model(&graph, (struct graph_onnx_options){.dtype = F32, .ranges = ranges,
                                                                     .preprocess = &augment}), OK);
    assert_int_equal(read_model().rounded, 5);
    ranges[3].high = 0;                        /* only zeros were seen: c stays as it is, and so do d's weights */
    assert_int_equal(write_model(&graph, (struct graph_onnx_options){.dtype = F32, .ranges = ranges}), OK);
    model = read_model();
    assert_int_equal(model.rounded, 4);
    assert_int_equal(model.integers, 6 * 4 * 9 + 6 + classes * 7);
    graph_free(&graph);
}

static void layers_may_have_any_name(void **state)
{
    static const char *const outputs[] = {"logits", "probabilities"};
    struct graph graph = layers(INPUT "a = conv input filters=4 kernel=1\na.weight = relu a\n"
                                "input.half = relu a.weight\nprobabilities = globalavgpool input.half\n"
                                "logits = linear probabilities units=$classes\n");
    for (int softmax = 0; softmax < 2; softmax++) {
        const struct graph_onnx_options options = {.dtype = F16, .softmax = softmax};
        assert_int_equal(write_model(&graph, options), OK);
        assert_string_equal(read_model().output, outputs[softmax]);
    }
    graph_free(&graph);
}

static void inexpressible_is_refused(void **state)
{
    static const char *const texts[] = {
        INPUT "a = lrn input size=4\nb = globalavgpool a\nc = linear b units=$classes\n",
        INPUT "a = adaptive_maxpool input size=2\nb = flatten a\nc = linear b units=$classes\n",
        INPUT "a = batchnorm input activation=relu\nb = globalavgpool a\nc = linear b units=$classes\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct graph graph = layers(texts[i]);
        assert_int_equal(write_model(&graph, (struct graph_onnx_options){.dtype = F32}), USAGE);
        graph_free(&graph);
    }
    struct graph graph = every_op();
    const struct graph_onnx_options large = {.dtype = F16, .read = read_large};
    assert_int_equal(write_model(&graph, large), USAGE);
    graph_free(&graph);
    unlink(path);
}

static void folders_that_are_missing(void **state)
{
    struct onnx onnx;
    assert_int_equal(onnx_open("/nowhere/at/all.onnx", "none", &onnx), FAILED);
}

static void metadata_count_towards_two_gibibytes(void **state)
{
    struct onnx onnx;
    assert_int_equal(onnx_open(path, "large", &onnx), OK);
    assert_int_equal(fseek(onnx.file.stream, INT32_MAX - 40, SEEK_SET), 0);
    onnx_end(&onnx);
    onnx_metadata(&onnx, "classes", "[\"more than what is left of two gibibytes\"]");
    assert_int_equal(onnx_close(&onnx, true), FAILED);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_of_model_files_can_be_exported),
        cmocka_unit_test(graphs_are_whole),
        cmocka_unit_test(opset_is_the_oldest_that_does),
        cmocka_unit_test(eight_bits_are_rounded_behind_relus),
        cmocka_unit_test(preprocessing_takes_images_of_any_size),
        cmocka_unit_test(layers_may_have_any_name),
        cmocka_unit_test(inexpressible_is_refused),
        cmocka_unit_test(folders_that_are_missing),
        cmocka_unit_test(metadata_count_towards_two_gibibytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
