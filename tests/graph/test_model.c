/* The model format: what files mean, what is refused and how, and that no file does harm. */
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "graph/expression.h"
#include "graph/graph_text.h"
#include "graph/model.h"
#include "graph/names.h"
#include "graph/norm_eps.h"
#include "kernels/norm/batchnorm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char said[1024];

static void hear(void *context, enum log_level level, const char *line)
{
    (void)context, (void)level;
    size_t length = strlen(said);
    snprintf(said + length, sizeof said - length, length ? "\n%s" : "%s", line);
}

static const struct model_options no_options = {.dropout = -1};

static enum status load(const char *text, struct graph *graph)
{
    said[0] = '\0';
    return model_load_text(&no_options, "net.ini", text, graph);
}

/* The sentence must be all of the message: place, layer, fault; with several, a line each. */
static void refuses(const char *text, const char *message)
{
    struct graph graph;
    assert_int_equal(load(text, &graph), USAGE);
    assert_string_equal(said, message);
}

static void accepts(const char *text, struct graph *graph)
{
    if (load(text, graph) != OK) fail_msg("%s", said);
}

static void has_param(const struct graph *graph, const char *name, const char *shape)
{
    char text[SHAPE_TEXT];
    int param = graph_find_param(graph, name);
    if (param < 0) fail_msg("there is no %s", name);
    assert_string_equal(shape_text(graph->params[param].spec.shape, text), shape);
}

static const struct node *node_of(const struct graph *graph, const char *name)
{
    int node = graph_find(graph, name);
    if (node < 0) fail_msg("there is no %s", name);
    return &graph->nodes[node];
}

#define INPUT "[input]\nchannels=3\nsize=8\nclasses=10\n"
#define HEAD "pool = globalavgpool %s\nfc = linear pool units=$classes\n"

static void test_layers(void **state)
{
    (void)state;
    struct graph graph;
    accepts(INPUT "[layers]\n"
            "conv1 = conv input filters=4 kernel=3 pad=1 bias=no\n"
            "bn1 = batchnorm conv1\n"
            "relu = relu bn1 ; a comment\n"
            "pool = globalavgpool relu\n"
            "fc = linear pool units=$classes\n", &graph);
    assert_int_equal(graph.count, 6);
    assert_int_equal(graph.output, 5);
    assert_int_equal(graph.classes, 10);
    assert_string_equal(graph.arch, "net");
    assert_string_equal(graph.nodes[1].where, "net.ini:6");
    assert_null(graph.nodes[0].op);
    assert_int_equal(graph.nodes[3].inputs[0], 2);
    has_param(&graph, "conv1.weight", "4x3x3x3");
    has_param(&graph, "bn1.running_var", "4");
    has_param(&graph, "fc.bias", "10");
    assert_int_equal(graph_find_param(&graph, "conv1.bias"), -1);
    assert_int_equal(graph_param_elements(&graph), 4 * 27 + 8 + 40 + 10);
    struct shape shapes[6];
    graph_shapes(&graph, 5, shapes);
    assert_true(shape_equal(shapes[3], shape_nhwc(5, 8, 8, 4)));
    graph_free(&graph);
}

static void test_blocks(void **state)
{
    (void)state;
    struct graph graph;
    accepts(INPUT
            "[block:unit]\n$kernel = 1\n"
            "conv = conv in filters=$width kernel=$kernel pad=$kernel/2\nrelu = relu conv\n"
            "[block:pair]\n"
            "a.0 = unit in width=$width\n"
            "a.1 = unit a.0 width=$width*(1+2)-1 kernel=3\n"
            "[layers]\n"
            "left = pair input width=4\n"
            "pool = globalavgpool left\nfc = linear pool units=$classes\n", &graph);
    has_param(&graph, "left.a.0.conv.weight", "4x3x1x1");
    graph_free(&graph);
}

static void test_faults_in_blocks_name_both_lines(void **state)
{
    (void)state;
    refuses(INPUT "[block:unit]\nconv = conv in filters=4 kernel=3 pad=$pad/2\n"
            "[block:two]\na = unit in pad=same\n[layers]\nx = two input\n",
            "net.ini:6: x.a.conv: pad: $pad is 'same', but '$pad/2' needs integers "
            "(used at line 8, used at line 10)");
}

static void test_several_inputs(void **state)
{
    (void)state;
    struct graph graph;
    accepts(INPUT "[block:join]\nboth = concat in\nfirst = conv in1 filters=2 kernel=1\n"
            "second = conv in2 filters=3 kernel=1\nall = concat both first second in2\n"
            "[layers]\na = conv input filters=5 kernel=1\nj = join a input\n"
            "pool = globalavgpool j\nfc = linear pool units=$classes\n", &graph);
    assert_int_equal(node_of(&graph, "j.both")->shape.c, 8);
    has_param(&graph, "j.first.weight", "2x5x1x1");
    has_param(&graph, "j.second.weight", "3x3x1x1");
    assert_int_equal(node_of(&graph, "j.all")->shape.c, 16);
    graph_free(&graph);
}

static void test_sizes_like_others(void **state)
{
    struct graph graph;
    (void)state;
    accepts(INPUT "[block:up]\nup = upsample in1 like=in2 mode=bilinear\n[layers]\n"
            "a = avgpool input kernel=2 ceil_mode=yes\nb = avgpool a kernel=2\n"
            "c = up b a\nd = upsample c like=input\npool = globalavgpool d\n"
            "fc = linear pool units=$classes\n", &graph);
    int c = graph_find(&graph, "c.up");
    assert_int_equal(graph.nodes[c].shape.h, graph.nodes[graph_find(&graph, "a")].shape.h);
    assert_int_equal(graph.nodes[c].input_count, 1);
    assert_int_equal(node_of(&graph, "d")->shape.w, graph.nodes[0].shape.w);
    graph_free(&graph);
}

static void test_ranges(void **state)
{
    (void)state;
    struct graph graph;
    accepts(INPUT "[block:grow]\nconv = conv in1 filters=2 kernel=1\nall = concat in1 conv\n"
            "add = add all all\n"
            "[layers]\nd.l1..3 = grow input\n"
            "pool = globalavgpool d.l3\nfc = linear pool units=$classes\n", &graph);
    has_param(&graph, "d.l1.conv.weight", "2x3x1x1");
    has_param(&graph, "d.l3.conv.weight", "2x7x1x1");
    assert_int_equal(node_of(&graph, "d.l3.add")->shape.c, 9);
    graph_free(&graph);
    refuses(INPUT "[layers]\nr5..2 = relu input\n", "net.ini:6: r5..2: the range is empty");
    refuses(INPUT "[layers]\nr1..3 = relu input\nr2 = relu r3\n",
            "net.ini:7: r2: this name is already used by a layer");
}

static void test_parameter_of_op(void **state)
{
    (void)state;
    struct graph graph;
    accepts(INPUT "[block:unit]\n$act = relu\nconv = conv in filters=4 kernel=1\nact = $act conv\n"
            "[layers]\na = unit input\nb = unit a act=silu\n"
            "pool = globalavgpool b\nfc = linear pool units=$classes\n", &graph);
    assert_string_equal(node_of(&graph, "a.act")->op->name, "relu");
    assert_string_equal(node_of(&graph, "b.act")->op->name, "silu");
    graph_free(&graph);
}

static void test_options(void **state)
{
    (void)state;
    static const char text[] = INPUT "[layers]\nd = dropout input rate=0.5\ne = dropout d\n"
                                     "pool = globalavgpool e\nfc = linear pool units=$classes\n";
    struct model_options options = {.size_h = 6, .size_w = 9, .channels = 1, .classes = 3, .dropout = 0.125};
    struct graph graph;
    assert_int_equal(model_load_text(&options, "net.ini", text, &graph), OK);
    assert_true(shape_equal(graph.nodes[0].shape, shape_nhwc(1, 6, 9, 1)));
    assert_int_equal(graph.classes, 3);
    for (int i = 1; i <= 2; i++) {
        const struct node *node = &graph.nodes[i];
        const struct field *rate = field_find(node->op->fields, "rate");
        assert_true(*(const double *)((const char *)node->settings + rate->offset) == 0.125);
    }
    graph_free(&graph);
}

static void test_input_defaults(void **state)
{
    (void)state;
    struct graph graph;
    accepts("[layers]\npool = globalavgpool input\nfc = linear pool units=$classes\n", &graph);
    assert_true(shape_equal(graph.nodes[0].shape, shape_nhwc(1, 224, 224, 3)));
    assert_int_equal(graph.classes, 1000);
    graph_free(&graph);
    refuses("[input]\nchanels=3\n[layers]\nfc=relu input\n",
            "net.ini:2: [input] has no key 'chanels'; did you mean 'channels'?");
    assert_int_equal(load("[input]\nsize=0\n[layers]\nfc=relu input\n", &graph), USAGE);
    assert_non_null(strstr(said, "net.ini:2: size "));
}

static void test_words_are_refused(void **state)
{
    (void)state;
    refuses(INPUT "[layers]\na = cnv input\n",
            "net.ini:6: a: 'cnv' is neither an op nor a block; did you mean 'conv'?");
    refuses(INPUT "[layers]\nconv1 = relu input\nb = relu conv2\n",
            "net.ini:7: b: there is no layer 'conv2' above it; did you mean 'conv1'?");
    refuses(INPUT "[layers]\na = relu in\n",
            "net.ini:6: a: there is no layer 'in' above it; did you mean 'input'?");
    refuses(INPUT "[layers]\na = conv input filter=3 kernel=1\n",
            "net.ini:6: a: conv has no setting 'filter'; did you mean 'filters'?");
    refuses(INPUT "[layers]\na = conv input kernel=1\n", "net.ini:6: a: conv needs filters=");
    refuses(INPUT "[layers]\na = conv input filters=1 filters=2 kernel=1\n",
            "net.ini:6: a: filters is given twice");
    refuses(INPUT "[layers]\na =\n", "net.ini:6: a: is empty; expected: NAME = OP INPUT...");
    refuses(INPUT "[layers]\na = relu\n", "net.ini:6: a: has no input");
    refuses(INPUT "[layers]\na..b = relu input\n",
            "net.ini:6: a..b: the name of a layer consists of letters, digits, '_' and '-', with single dots "
            "between them");
    refuses(INPUT "[layers]\n../x = relu input\n",
            "net.ini:6: ../x: the name of a layer consists of letters, digits, '_' and '-', with single dots "
            "between them");
    refuses(INPUT "[layers]\nin2 = relu input\n", "net.ini:6: in2: 'in2' is reserved for inputs");
    refuses(INPUT "[layers]\na = add input input input\nb = relu input input\n",
            "net.ini:7: b: relu takes 1 input, not 2");
    refuses(INPUT "[layers]\na = relu input\nb = upsample a like=nowhere\nd = relu b\n",
            "net.ini:7: b: there is no layer 'nowhere' above it");
    refuses(INPUT "[layers]\na = relu input like=input\n",
            "net.ini:6: a: relu has no settings, so no 'like'");
    refuses(INPUT "[block:unit]\nconv = conv in filters=4 kernel=1\n"
            "[layers]\na.conv = relu input\na = unit a.conv\n",
            "net.ini:6: a.conv: this name is already used by a layer, from net.ini:8");
}

/* Each layer that is wrong is reported, but not those that read one of them. */
static void test_all_mistakes_are_reported(void **state)
{
    (void)state;
    refuses(INPUT "[layers]\na = conv input filter=3\nb = relu a\nc = rlu b\nd = rlu input\n"
            "e1..2 = tnh input\nf = relu e2\ng = add d input\nh = relu nowhere\n",
            "net.ini:6: a: conv has no setting 'filter'; did you mean 'filters'?\n"
            "net.ini:9: d: 'rlu' is neither an op nor a block; did you mean 'relu'?\n"
            "net.ini:10: e1: 'tnh' is neither an op nor a block\n"
            "net.ini:13: h: there is no layer 'nowhere' above it");
    refuses(INPUT "[block:unit]\nconv = conv in\nnorm = batchnrm conv\n[layers]\na = unit input\nb = unit a\n"
            "c = unit input\n",
            "net.ini:6: a.conv: conv needs filters= (used at line 9)\n"
            "net.ini:6: c.conv: conv needs filters= (used at line 11)");
}

static char *repeated(const char *piece, int count)
{
    struct text text = {0};
    for (int i = 0; i < count; i++) text_add(&text, "%s", piece);
    return text.data;
}

static void expect_refused(char *text, const char *words)
{
    struct graph graph;
    assert_int_equal(load(text, &graph), USAGE);
    if (!strstr(said, words)) fail_msg("'%s' does not say '%s'", said, words);
    free(text);
}

static void test_more_than_there_may_be(void **state)
{
    (void)state;
    char *inputs = repeated("\n    input", 65), *name = repeated("x", 90);
    expect_refused(text_format(INPUT "[layers]\na = concat%s\n", inputs), "a: has more than 64 inputs");
    expect_refused(text_format(INPUT "[block:one]\n%s = relu in\n[block:two]\n%s = one in\n"
                               "[layers]\n%s = two input\n", name, name, name),
                   "its name is longer than 200 bytes");
    struct text block = {0};
    text_add(&block, INPUT "[block:unit]\n");
    for (int i = 0; i < 65; i++) text_add(&block, "$p%d = 1\n", i);
    text_add(&block, "a = relu in\n[layers]\nu = unit input\n");
    expect_refused(block.data, "block unit has more than 64 parameters");
    free(inputs);
    free(name);
}

static void test_shapes_are_checked(void **state)
{
    (void)state;
    struct graph graph;
    assert_int_equal(load(INPUT "[layers]\na = conv input filters=4 kernel=3\nb = add a input\n", &graph),
                     USAGE);
    assert_non_null(strstr(said, "net.ini:7: b: "));
    refuses(INPUT "[layers]\na = conv input filters=4 kernel=1\n",
            "net.ini:6: a: the output of the last layer must have one number per class, not shape 1x8x8x4");
    refuses(INPUT "[layers]\np = globalavgpool input\na = linear p units=7\n",
            "net.ini:7: a: the last layer has 7 outputs, but $classes is 10");
    refuses(INPUT "[layers]\na = relu input\np = globalavgpool input\nfc = linear p units=10\n",
            "net.ini:6: a: its output is not used, and it is not the last layer");
    refuses("[input]\nsize=20000\n[layers]\na = conv input filters=1000000 kernel=1\n",
            "net.ini:4: a: its output 1x20000x20000x1000000 is empty or too large");
    refuses("[input]\nsize=60000\n[layers]\na = relu input\n",
            "net.ini: images of 60000x60000x3 are too large");
    refuses(INPUT "[layers]\na = channel_pad input channels=4\n",
            "net.ini:6: a: channels=4 must be the input's 3 and an even number more");
    refuses(INPUT "[layers]\na = conv input filters=60000 kernel=1\nb = conv a filters=60000 kernel=1\n",
            "net.ini:7: b: its weight is empty or too large");
}

#define PIXELS "[input]\nsize=8\nclasses=4\n[layers]\na = conv input filters=4 kernel=1\n" \
               "p = maxpool a kernel=2 stride=2\nb = conv p filters=4 kernel=1\nc = relu a\n"

static enum status load_pixels(const char *text, enum model_outputs outputs, struct graph *graph)
{
    const struct model_options options = {.outputs = outputs, .dropout = -1};
    said[0] = '\0';
    return model_load_text(&options, "net.ini", text, graph);
}

static void refuses_pixels(const char *text, const char *why)
{
    struct graph graph;
    assert_int_equal(load_pixels(text, OUTPUTS_OF_PIXELS, &graph), USAGE);
    if (!strstr(said, why)) fail_msg("'%s' is not in '%s'", why, said);
}

static void test_outputs(void **state)
{
    (void)state;
    struct graph graph, read;
    const char *two = PIXELS "[outputs]\nmain = c\naux.1 = b weight=0.25\n";
    assert_int_equal(load_pixels(two, OUTPUTS_OF_PIXELS, &graph), OK);
    assert_int_equal(graph.output_count, 2);
    assert_int_equal(graph.output, graph_find(&graph, "c"));
    assert_int_equal(graph.outputs[0].node, graph.output);
    assert_true(graph.outputs[0].weight == 1 && graph.outputs[1].weight == 0.25);
    assert_string_equal(graph.outputs[1].name, "aux.1");
    assert_int_equal(graph.outputs[1].node, graph_find(&graph, "b"));
    assert_true(graph_is_classifier(&graph, graph_find(&graph, "a")));
    assert_true(graph_is_classifier(&graph, graph_find(&graph, "b")));

    struct text text = {0}, again = {0};
    struct reason difference;
    graph_text(&graph, &text);
    assert_int_equal(load_pixels(text.data, OUTPUTS_ANY, &read), OK);
    graph_text(&read, &again);
    assert_string_equal(text.data, again.data);
    read.outputs[1].weight = 0.5;
    text_free(&again);
    graph_text(&read, &again);
    assert_false(graph_text_same(text.data, again.data, GRAPH_SAME_TRAINING, &difference));
    assert_true(graph_text_same(text.data, again.data, GRAPH_SAME_WEIGHTS, &difference));
    text_free(&text);
    text_free(&again);

    struct graph copy = graph_copy(&graph), part = graph_until(&graph, 2, false);
    assert_int_equal(copy.output_count, 2);
    assert_int_equal(part.output_count, 0);
    assert_int_equal(fuse(&copy), OK);
    assert_int_equal(copy.outputs[1].node, graph_find(&copy, "b"));
    graph_free(&part);
    graph_free(&copy);
    graph_free(&read);
    graph_free(&graph);
}

static void test_outputs_are_checked(void **state)
{
    (void)state;
    struct graph graph;
    refuses(PIXELS "[outputs]\nmain = c\nb = b\n",
            "net.ini:9: [outputs]: several outputs are for a class for every pixel (data.task = segment)");
    refuses_pixels(PIXELS, "net.ini:7: b: its output is not used, and it is not the last layer");
    refuses_pixels(PIXELS "[outputs]\nc = c\n", "b: its output is not used, and it is none of [outputs]");
    refuses_pixels(PIXELS "[outputs]\nb = b\nc = c\n",
                   "net.ini:7: b: the output must have a vector for each pixel of the image 1x8x8x3, not "
                   "shape 1x4x4x4; the op upsample enlarges it");
    refuses_pixels(PIXELS "d = conv c filters=3 kernel=1\n[outputs]\nc = c\nd = d\nb = b\n",
                   "net.ini:9: d: an output has 3 outputs, but $classes is 4");
    refuses_pixels(PIXELS "[outputs]\n", "net.ini:9: [outputs] is empty");
    refuses_pixels(PIXELS "[outputs]\nc = e\n", "net.ini:10: c: there is no layer 'e' above it");
    refuses_pixels(PIXELS "[outputs]\nc =\n", "net.ini:10: c: is empty; expected: NAME = LAYER weight=W");
    refuses_pixels(PIXELS "[outputs]\nc = c b\n", "'b': an output is one layer, and has only weight=");
    refuses_pixels(PIXELS "[outputs]\nc = c weight=-1\n", "net.ini:10: c: weight: ");
    refuses_pixels(PIXELS "[output]\nc = c\n", "did you mean [outputs]?");
    assert_int_equal(load_pixels(PIXELS "[outputs]\nc = c\nb = b\n", OUTPUTS_ANY, &graph), OK);
    graph_free(&graph);
}

static void test_parameters_are_checked(void **state)
{
    (void)state;
#define UNIT "[block:unit]\n$kernel=1\nconv = conv in filters=$width kernel=$kernel\n[layers]\n"
    refuses(INPUT UNIT "a = unit input\n", "net.ini:9: a: block unit requires width=");
    refuses(INPUT UNIT "a = unit input widht=3\n",
            "net.ini:9: a: block unit has no parameter 'widht'; did you mean 'width'?");
    refuses(INPUT UNIT "a = unit input width=x*2\n",
            "net.ini:7: a.conv: filters must be a whole number, not 'x*2' (used at line 9)");
    refuses(INPUT UNIT "a = unit input width=$w\n", "net.ini:9: a: width: there is no parameter $w here");
    refuses(INPUT "[block:conv]\na = relu in\n", "net.ini:5: [block:conv]: this is the name of an op");
    refuses(INPUT "[block:b]\n$1x = 3\na = relu in\n[layers]\nx = b input\n",
            "net.ini:6: x.$1x: the name of a parameter consists of letters, digits and '_' and does not "
            "begin with a digit (used at line 9)");
#undef UNIT
}

static void test_sections_are_checked(void **state)
{
    (void)state;
    refuses(INPUT, "net.ini: the section [layers] is missing");
    refuses(INPUT "[layers]\n", "net.ini:5: [layers] has no layers");
    refuses(INPUT "[layer]\n", "net.ini:5: [layer]: there is no such section; did you mean [layers]?");
    refuses(INPUT "[optimizer]\n",
            "net.ini:5: [optimizer]: there are only [input], [block:NAME], [layers] and [outputs]");
    refuses(INPUT "[input]\n", "net.ini:5: [input]: is defined twice");
    refuses(INPUT "[block:x]\n[layers]\na = x input\n", "net.ini:5: [block:x] has no layers");
}

static void test_recursion_ends(void **state)
{
    (void)state;
    refuses(INPUT "[block:a]\nx = b in\n[block:b]\ny = a in\n[layers]\nz = a input\n",
            "net.ini:8: z.x.y: block a is recursive (used at line 6, used at line 10)");
    /* Each block uses the one before it ten times: 10^8 nodes if nobody counted. */
    struct text text = {0};
    struct graph graph;
    text_add(&text, INPUT "[block:b0]\nr1..10 = relu in\n");
    for (int i = 1; i < 8; i++) text_add(&text, "[block:b%d]\nr1..10 = b%d in\n", i, i - 1);
    text_add(&text, "[layers]\nx = b7 input\n");
    assert_int_equal(load(text.data, &graph), USAGE);
    assert_non_null(strstr(said, "the network has more than 100000 layers"));
    text_free(&text);
    for (int i = 1; i < 40; i++) text_add(&text, "[block:b%d]\nr = b%d in\n", i, i + 1);
    text_add(&text, "[block:b40]\nr = relu in\n[layers]\nx = b1 input\n");
    assert_int_equal(load(text.data, &graph), USAGE);
    assert_non_null(strstr(said, "blocks are nested more than 32 deep"));
    text_free(&text);
}

static void test_names_lead_nowhere_else(void **state)
{
    (void)state;
    const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    struct model_options options = {.arch = "../models/lenet5", .folders = folders, .dropout = -1};
    struct graph graph;
    int size, channels;
    said[0] = '\0';
    assert_int_equal(model_load(&options, &graph), USAGE);
    assert_non_null(strstr(said, "there is no model '../models/lenet5'"));
    options.arch = "resnet5O";
    said[0] = '\0';
    assert_int_equal(model_load(&options, &graph), USAGE);
    assert_string_equal(said, "there is no model 'resnet5O'; did you mean 'resnet50'?");
    options.arch = "lenet5";
    assert_int_equal(model_input(&options, &size, &channels), OK);
    assert_int_equal(size, 28);
    assert_int_equal(channels, 1);
    options = (struct model_options){.file = "/nowhere/net.ini", .dropout = -1};
    assert_int_equal(model_load(&options, &graph), USAGE);
    assert_non_null(strstr(said, "/nowhere/net.ini"));
}

/* ---- Expressions and names ---- */

static void reckons(const char *text, const char *expected)
{
    struct bindings bindings = {0};
    struct reason reason;
    bindings_add(&bindings, "w", "16");
    bindings_add(&bindings, "wide", "3");
    bindings_add(&bindings, "rate", "0.5");
    bindings_add(&bindings, "minus", "-7");
    char *result = expression_text(text, &bindings, &reason);
    assert_string_equal(result ? result : reason.text, expected);
    free(result);
    bindings_free(&bindings);
}

static void test_expressions(void **state)
{
    (void)state;
    reckons("64", "64");
    reckons("a*b", "a*b");
    reckons("$rate", "0.5");
    reckons("$w*4", "64");
    reckons("$w+$wide*2", "22");
    reckons("($w+$wide)*2", "38");
    reckons("-$w/4", "-4");
    reckons("$w-4-4", "8");
    reckons("$minus+0", "-7");
    reckons("2*$w/(4+4)", "4");
    reckons("$w/3", "5");
    reckons("$w/0", "'$w/0' divides by zero");
    reckons("$rate*2", "$rate is '0.5', but '$rate*2' needs integers");
    reckons("$w*", "'$w*' is not an integer expression");
    reckons("$w 3", "'$w 3' is not an integer expression");
    reckons("($w", "'($w' has no closing ')'");
    reckons("$", "'$' must be followed by the name of a parameter");
    reckons("$no", "there is no parameter $no here");
    reckons("$w*1000000000000", "'$w*1000000000000' is too large");
    reckons("$w*9223372036854775807", "'$w*9223372036854775807' is not an integer expression");
}

static void test_deep_expressions_end(void **state)
{
    (void)state;
    char deep[3000];
    memset(deep, '(', sizeof deep);
    memcpy(deep + sizeof deep - 3, "$w", 3);
    struct bindings bindings = {0};
    struct reason reason;
    assert_null(expression_text(deep, &bindings, &reason));
    assert_non_null(strstr(reason.text, "((("));
}

static void test_names(void **state)
{
    (void)state;
    struct names names = {0};
    char name[16];
    assert_int_equal(names_find(&names, "x"), -1);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_true(names_add(&names, name, 2 * i));
        assert_false(names_add(&names, name, 7));
    }
    assert_int_equal(names_find(&names, "n777"), 777);
    assert_int_equal(names.value[777], 2 * 777);
    assert_int_equal(names_find(&names, "n1000"), -1);
    names_free(&names);
}

/* ---- Fusion ---- */

static void fused(const char *text, struct graph *graph, int count)
{
    accepts(text, graph);
    int params = graph->param_count;
    assert_int_equal(fuse(graph), OK);
    assert_int_equal(graph->count, count);
    assert_int_equal(graph->param_count, params);
    for (int i = 0; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        for (int j = 0; j < node->input_count; j++) assert_in_range(node->inputs[j], 0, i - 1);
        for (int j = 0; j < node->param_count; j++)
            assert_int_equal(graph->params[node->param_first + j].node, i);
    }
}

#define TAIL "pool = globalavgpool last\nfc = linear pool units=$classes\n"

/* A pooling goes in front of a relu that it alone reads. */
static void test_fuse_pooling(void **state)
{
    (void)state;
    struct graph graph;
    fused(INPUT "[layers]\nr = relu6 input\nlast = maxpool r kernel=2\n" TAIL, &graph, 5);
    assert_string_equal(graph.nodes[1].name, "last");
    assert_string_equal(graph.nodes[2].name, "r");
    assert_int_equal(graph.nodes[2].inputs[0], 1);
    assert_true(shape_equal(graph.nodes[1].shape, graph.nodes[2].shape));
    graph_free(&graph);
    fused(INPUT "[layers]\nr = silu input\nlast = maxpool r kernel=2\n" TAIL, &graph, 5);
    assert_string_equal(graph.nodes[1].name, "r");
    graph_free(&graph);
    fused(INPUT "[layers]\nr = relu input\nm = maxpool r kernel=1\nlast = add m r\n" TAIL, &graph, 6);
    assert_string_equal(graph.nodes[1].name, "r");
    graph_free(&graph);
    static const char *const into[] = {"r = relu input\nlast = maxpool r kernel=2\n",
                                       "m = maxpool input kernel=2\nlast = relu m\n"};
    for (int i = 0; i < 2; i++) {
        char *text = text_format(INPUT "[layers]\n%s" TAIL, into[i]);
        fused(text, &graph, 4);
        assert_string_equal(graph.nodes[1].op->name, "maxpool_relu");
        assert_int_equal(graph.nodes[2].inputs[0], 1);
        graph_free(&graph);
        free(text);
    }
    fused(INPUT "[layers]\nm = maxpool input kernel=16 stride=1 pad=8\nlast = relu m\n" TAIL, &graph, 5);
    graph_free(&graph);
    fused(INPUT "[layers]\nm = maxpool input kernel=1\nr = relu m\nlast = add m r\n" TAIL, &graph, 6);
    graph_free(&graph);
}

static void test_fuse_activation(void **state)
{
    (void)state;
    struct graph graph;
    fused(INPUT "[layers]\nbn = batchnorm input\nlast = relu6 bn\n" TAIL, &graph, 4);
    assert_string_equal(graph.nodes[1].name, "bn");
    assert_int_equal(graph.nodes[2].inputs[0], 1);
    assert_int_equal(graph.output, 3);
    graph_free(&graph);
    fused(INPUT "[layers]\nbn = batchnorm input\nlast = silu bn\n" TAIL, &graph, 4);
    graph_free(&graph);
    fused(INPUT "[layers]\nbn = batchnorm input\nlast = hardswish bn\n" TAIL, &graph, 4);
    graph_free(&graph);
    fused(INPUT "[layers]\nbn = batchnorm input\nlast = gelu bn\n" TAIL, &graph, 5);
    graph_free(&graph);
    /* A smooth one's slope is not told by the sum. */
    fused(INPUT "[layers]\nbn = batchnorm input\nadd = add bn input\nlast = silu add\n" TAIL, &graph, 6);
    graph_free(&graph);
    /* Two readers: the value before the activation is wanted. */
    fused(INPUT "[layers]\nbn = batchnorm input\nr = relu bn\nlast = add r bn\n" TAIL, &graph, 6);
    graph_free(&graph);
}

static void test_fuse_residual(void **state)
{
    (void)state;
    struct graph graph;
    fused(INPUT "[layers]\na = conv input filters=3 kernel=1\nbn = batchnorm a\nadd = add bn input\n"
          "last = relu add\n" TAIL, &graph, 5);
    assert_int_equal(graph.nodes[2].input_count, 2);
    assert_int_equal(graph.nodes[2].inputs[0], 1);
    assert_int_equal(graph.nodes[2].inputs[1], 0);
    graph_free(&graph);
    /* Both are batch norms: the later one takes the earlier one in, whatever the order in add. */
    fused(INPUT "[layers]\nbn = batchnorm input\ndown = batchnorm input\nadd = add bn down\n"
          "last = relu add\n" TAIL, &graph, 5);
    assert_string_equal(graph.nodes[2].name, "down");
    assert_int_equal(graph.nodes[2].inputs[1], 1);
    graph_free(&graph);
    /* The shortcut runs later than the batch norm: nothing is moved. */
    fused(INPUT "[layers]\nbn = batchnorm input\nside = conv input filters=3 kernel=1\nadd = add bn side\n"
          "last = relu add\n" TAIL, &graph, 7);
    graph_free(&graph);
    /* The sum is read twice. */
    fused(INPUT "[layers]\nbn = batchnorm input\nadd = add bn input\nr = relu add\nlast = add r add\n" TAIL,
          &graph, 7);
    graph_free(&graph);
}

/* The shortcut is itself an activation that vanished. */
static void test_fuse_chain(void **state)
{
    (void)state;
    struct graph graph;
    fused(INPUT "[block:unit]\nbn1 = batchnorm in\nr1 = relu bn1\nbn2 = batchnorm r1\nadd = add in bn2\n"
          "r2 = relu add\n[layers]\nu1..3 = unit input\nlast = relu u3\n" TAIL, &graph, 10);
    const struct node *node = node_of(&graph, "u2.bn2");
    assert_string_equal(graph.nodes[node->inputs[0]].name, "u2.bn1");
    assert_string_equal(graph.nodes[node->inputs[1]].name, "u1.bn2");
    graph_free(&graph);
}

/* ---- Hostile files ---- */

static const char seed_text[] = INPUT
    "[block:unit]\n$kernel = 1\nconv = conv in filters=$width kernel=$kernel pad=($kernel-1)/2\n"
    "bn = batchnorm conv\nrelu = relu bn\n"
    "[block:cell]\na.0..2 = unit in width=$width\nb = conv in1 filters=$width*2 kernel=1 groups=1\n"
    "all = concat a.2 b in\n[layers]\nc1 = cell input width=4\nc2..4 = cell c1 width=8\n"
    "pool = globalavgpool c4\nd = dropout pool rate=0.5\nfc = linear d units=$classes\n";

/* Replaces, inserts, deletes or doubles a stretch. */
static void mutate(char *text, size_t size, struct random *random)
{
    static const char *const bits[] = {
        "$", "=", "..", "1", "0", "99999999999", "-", "\n", " ", "[", "]", "block:", "in", "unit", "cell",
        "$width", "*", "/", "(", ")", ";", ".", "conv", "\xff", "[layers]\n", "1..99999", "kernel=", "999",
        "input", "%s", "$$", "in64",
    };
    size_t length = strlen(text), at = random_below(random, (uint32_t)length + 1);
    size_t cut = random_below(random, 3) ? random_below(random, 4) : random_below(random, 40);
    char bit[64];
    snprintf(bit, sizeof bit, "%s", bits[random_below(random, sizeof bits / sizeof *bits)]);
    if (random_below(random, 4) == 0) {
        size_t from = random_below(random, (uint32_t)length);
        snprintf(bit, sizeof bit, "%.*s", (int)random_below(random, 60), text + from);
    }
    if (cut > length - at) cut = length - at;
    if (length - cut + strlen(bit) >= size) return;
    memmove(text + at + strlen(bit), text + at + cut, length - at - cut + 1);
    memcpy(text + at, bit, strlen(bit));
}

static void test_hostile_files_do_no_harm(void **state)
{
    (void)state;
    int rounds = 5000, accepted = 0;
    int error_output = dup(STDERR_FILENO);
    assert_non_null(freopen("/dev/null", "w", stderr));
    for (int i = 0; i < rounds; i++) {
        char text[4096];
        struct graph graph;
        struct random random = random_open(1, PURPOSE_TEST, (uint64_t)i, 0);
        snprintf(text, sizeof text, "%s", seed_text);
        for (uint32_t j = random_below(&random, 6); j > 0; j--) mutate(text, sizeof text, &random);
        enum status status = load(text, &graph);
        assert_true(status == OK || (status == USAGE && said[0]));
        if (status != OK) continue;
        accepted++;
        fuse(&graph);
        graph_free(&graph);
    }
    fflush(stderr);
    dup2(error_output, STDERR_FILENO);
    close(error_output);
    assert_in_range(accepted, rounds / 10, rounds - 1);
}

/* A short file of blocks in blocks, each used often. */
static void test_text_that_multiplies_is_refused(void **state)
{
    (void)state;
    enum { BLOCKS = 20 };
    struct text text = {0};
    struct graph graph;
    char *word = repeated("\n    xxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 100);
    text_add(&text, INPUT);
    text_add(&text, "[block:b0]\nl = relu in\n");
    for (int i = 1; i < BLOCKS; i++)
        text_add(&text, "[block:b%d]\n$long = \"%s\"\nl = b%d in\n", i, word, i - 1);
    text_add(&text, "[layers]\nl1..99999 = b%d input\n", BLOCKS - 1);
    assert_int_equal(load(text.data, &graph), USAGE);
    assert_non_null(strstr(said, "with all blocks expanded the network exceeds 32 MiB of text"));
    text_free(&text);
    free(word);
}

/* Batch norm counts with its convolution, a short cut as the longer way beside it. */
/* All but the first and the last layer with weights, whatever is between; grouped convolutions, too. */
static void test_hidden_matrices(void **state)
{
    static const struct {
        const char *param;
        int64_t rows;
    } expected[] = {
        {"first.weight", 0}, {"norm.weight", 0}, {"body.weight", 6}, {"deep.weight", 8}, {"deep.bias", 0},
        {"side.weight", 8},  {"hidden.weight", 12}, {"fc.weight", 0}, {"fc.bias", 0},
    };
    struct graph graph;
    struct model_options options = {.classes = 5, .dropout = -1};
    assert_int_equal(model_load_text(&options, "net",
                                     "[input]\nchannels = 3\nsize = 8\n[layers]\n"
                                     "first = conv input filters=6 kernel=3 pad=1 bias=no\n"
                                     "norm = batchnorm first\n"
                                     "body = conv norm filters=6 kernel=3 pad=1 groups=3 bias=no\n"
                                     "deep = conv body filters=8 kernel=1\n"
                                     "side = conv norm filters=8 kernel=1 bias=no\n"
                                     "sum = add deep side\n"
                                     "pool = globalavgpool sum\n"
                                     "hidden = linear pool units=12\n"
                                     "relu = relu hidden\n"
                                     "fc = linear relu units=$classes\n", &graph), OK);
    graph_find_matrices(&graph);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        int param = graph_find_param(&graph, expected[i].param);
        if (param < 0) fail_msg("no %s", expected[i].param);
        if (graph.params[param].rows != expected[i].rows)
            fail_msg("%s has %d rows", expected[i].param, (int)graph.params[param].rows);
    }
    assert_int_equal(graph.params[graph_find_param(&graph, "deep.weight")].alike, 2);
    assert_int_equal(graph.params[graph_find_param(&graph, "hidden.weight")].alike, 1);
    assert_int_equal(graph.params[graph_find_param(&graph, "fc.weight")].alike, 0);
    graph_free(&graph);
}

static void test_layers_behind(void **state)
{
    (void)state;
    struct graph graph;
    accepts("[input]\nchannels=3\nsize=8\n[layers]\nconv1 = conv input filters=8 kernel=1\n"
            "bn1 = batchnorm conv1\na = conv bn1 filters=8 kernel=1\nb = conv a filters=8 kernel=1\n"
            "short = conv bn1 filters=8 kernel=1\nadd = add b short\nrelu = relu add\n"
            "pool = globalavgpool relu\nfc = linear pool units=$classes\n", &graph);
    static const struct {
        const char *node;
        int layers;
    } cases[] = {{"conv1", 3}, {"bn1", 3}, {"a", 2}, {"b", 1}, {"short", 1}, {"relu", 1}, {"fc", 0}};
    int layers[32];
    graph_layers_behind(&graph, false, layers);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(layers[node_of(&graph, cases[i].node) - graph.nodes], cases[i].layers);
    graph_free(&graph);
}

#define WITH_BLOCKS                                                                                          \
    INPUT "[block:unit]\na = conv in filters=3 kernel=1\nb = linear a units=3 per_pixel=yes\n"              \
    "drop = drop_path b rate=0\nadd = add drop in\n"                                                       \
    "[block:pair]\nfirst = unit in\nsecond = unit first\n"                                                 \
    "[layers]\nstem = conv input filters=3 kernel=1\nu0..1 = unit stem\np = pair u1\nbn = batchnorm p\n"    \
    "pool = globalavgpool bn\nfc = linear pool units=$classes\n"

/* An outermost block counts once, whatever is in it; as in timm, a last norm counts with the block before. */
static void test_blocks_behind(void **state)
{
    (void)state;
    struct graph graph;
    accepts(WITH_BLOCKS, &graph);
    static const struct {
        const char *node;
        int blocks;
    } cases[] = {{"stem", 4}, {"u0.a", 3}, {"u0.add", 3}, {"u1.a", 2}, {"u1.b", 2}, {"p.first.a", 1},
                 {"p.second.b", 1}, {"bn", 1}, {"fc", 0}};
    int blocks[32];
    graph_layers_behind(&graph, true, blocks);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(blocks[node_of(&graph, cases[i].node) - graph.nodes], cases[i].blocks);
    graph_free(&graph);
}

static double rate_of(const struct graph *graph, const char *name)
{
    const struct node *node = node_of(graph, name);
    return *(const double *)((const char *)node->settings + field_find(node->op->fields, "rate")->offset);
}

/* Rates grow from block to block, or keep their proportions. */
static void test_drop_path(void **state)
{
    (void)state;
    const double half = 0.5;
    struct model_options options = {.dropout = -1, .drop_path = &half};
    struct graph graph;
    assert_int_equal(model_load_text(&options, "net.ini", WITH_BLOCKS, &graph), OK);
    assert_true(rate_of(&graph, "u0.drop") == 0);
    assert_true(rate_of(&graph, "u1.drop") == 0.25);
    assert_true(rate_of(&graph, "p.first.drop") == 0.5);
    assert_true(rate_of(&graph, "p.second.drop") == 0.5);
    graph_free(&graph);
    static const char rates[] = INPUT "[layers]\na = drop_path input rate=0.1\nb = drop_path a rate=0.2\n"
                                      "pool = globalavgpool b\nfc = linear pool units=$classes\n";
    assert_int_equal(model_load_text(&options, "net.ini", rates, &graph), OK);
    assert_true(rate_of(&graph, "a") == 0.25);
    assert_true(rate_of(&graph, "b") == 0.5);
    graph_free(&graph);
    said[0] = '\0';
    assert_int_equal(model_load_text(&options, "net.ini", "[layers]\npool = globalavgpool input\n"
                                     "fc = linear pool units=$classes\n", &graph), USAGE);
    assert_non_null(strstr(said, "model.drop_path: the network 'net' has no layers of drop_path"));
    options.drop_path = &(const double){0};        /* which it has */
    assert_int_equal(model_load_text(&options, "net.ini", "[layers]\npool = globalavgpool input\n"
                                     "fc = linear pool units=$classes\n", &graph), OK);
    graph_free(&graph);
}

static void test_norm_eps(void **state)
{
    (void)state;
    struct model_options options = {.dropout = -1, .norm_eps = 1e-12};
    struct graph graph;
    assert_int_equal(model_load_text(&options, "net.ini", INPUT "[layers]\na = layernorm input\n"
                                     "b = layernorm a eps=1e-5\npool = globalavgpool b\n"
                                     "fc = linear pool units=$classes\n", &graph), OK);
    assert_true(norm_eps_of(&graph) == 1e-12);
    assert_true(norm_eps_differs(1e-12, 1e-6) && !norm_eps_differs(1e-6, 1e-6) && !norm_eps_differs(0, 1e-6));
    graph_free(&graph);
    options.norm_eps = 0;
    accepts(INPUT "[layers]\na = layernorm input\nb = layernorm a eps=1e-5\npool = globalavgpool b\n"
            "fc = linear pool units=$classes\n", &graph);
    assert_true(norm_eps_of(&graph) == 0);
    graph_free(&graph);
    options.norm_eps = 1e-4;
    assert_int_equal(model_load_text(&options, "net.ini", INPUT "[layers]\na = batchnorm input\n"
                                     "b = batchnorm a eps=1e-3\npool = globalavgpool b\n"
                                     "fc = linear pool units=$classes\n", &graph), OK);
    assert_true(norm_eps_of(&graph) == 1e-4);
    graph_free(&graph);
    said[0] = '\0';
    options.norm_eps = 1e-5;
    assert_int_equal(model_load_text(&options, "net.ini", "[layers]\npool = globalavgpool input\n"
                                     "fc = linear pool units=$classes\n", &graph), USAGE);
    assert_non_null(strstr(said, "model.norm_eps: the network 'net' has neither layer norms nor batch"));
}

static void test_bn_momentum(void **state)
{
    (void)state;
    static const double given[] = {0, 0.5}, own[] = {0.1, 0.5}, other[] = {0.2, 0.5};
    for (int i = 0; i < 2; i++) {
        const struct model_options options = {.dropout = -1, .bn_momentum = given[i]};
        struct graph graph;
        assert_int_equal(model_load_text(&options, "net.ini", INPUT "[layers]\na = batchnorm input\n"
                                         "b = batchnorm a momentum=0.2\npool = globalavgpool b\n"
                                         "fc = linear pool units=$classes\n", &graph), OK);
        const struct batchnorm *a = graph.nodes[1].settings, *b = graph.nodes[2].settings;
        assert_true(a->momentum == own[i] && b->momentum == other[i]);
        graph_free(&graph);
    }
}

static void test_parameter_of_a_layer_that_ends_in_an_underscore(void **state)
{
    (void)state;
    struct graph graph;
    accepts(INPUT "[layers]\npool = globalavgpool input\nin_proj_ = linear pool units=$classes\n", &graph);
    has_param(&graph, "in_proj_weight", "10x3");
    has_param(&graph, "in_proj_bias", "10");
    graph_free(&graph);
}

/* Dropout that drops nothing is left out, and what is read through it is fused. */
static void test_fuse_idle(void **state)
{
    (void)state;
    struct graph graph;
    fused(INPUT "[layers]\nbn = batchnorm input\nd = dropout bn rate=0\ne = drop_path d rate=0\n"
          "last = relu e\n" TAIL, &graph, 4);
    assert_int_equal(graph.nodes[2].inputs[0], 1);
    graph_free(&graph);
    fused(INPUT "[layers]\nbn = batchnorm input\nd = dropout bn rate=0.1\nlast = relu d\n" TAIL, &graph, 6);
    graph_free(&graph);
    fused(INPUT "[layers]\nbn = batchnorm input\nd = dropout bn rate=0\na = relu d\nb = relu6 d\n"
          "last = add a b\n" TAIL, &graph, 7);
    graph_free(&graph);
    fused(INPUT "[layers]\np = pad input multiple=4\nlast = pad p multiple=3\n" TAIL, &graph, 4);
    assert_int_equal(graph.nodes[1].shape.h, 9);
    graph_free(&graph);
    fused("[layers]\npool = globalavgpool input\nfc = linear pool units=$classes\nd = dropout fc rate=0\n",
          &graph, 3);
    assert_int_equal(graph.output, 2);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_faults_in_blocks_name_both_lines),
        cmocka_unit_test(test_several_inputs),
        cmocka_unit_test(test_layers_behind),
        cmocka_unit_test(test_blocks_behind),
        cmocka_unit_test(test_drop_path),
        cmocka_unit_test(test_norm_eps),
        cmocka_unit_test(test_bn_momentum),
        cmocka_unit_test(test_parameter_of_a_layer_that_ends_in_an_underscore),
        cmocka_unit_test(test_hidden_matrices),
        cmocka_unit_test(test_sizes_like_others),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_parameter_of_op),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_input_defaults),
        cmocka_unit_test(test_words_are_refused),
        cmocka_unit_test(test_all_mistakes_are_reported),
        cmocka_unit_test(test_more_than_there_may_be),
        cmocka_unit_test(test_shapes_are_checked),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_outputs_are_checked),
        cmocka_unit_test(test_parameters_are_checked),
        cmocka_unit_test(test_sections_are_checked),
        cmocka_unit_test(test_recursion_ends),
        cmocka_unit_test(test_text_that_multiplies_is_refused),
        cmocka_unit_test(test_names_lead_nowhere_else),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_deep_expressions_end),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_fuse_activation),
        cmocka_unit_test(test_fuse_pooling),
        cmocka_unit_test(test_fuse_residual),
        cmocka_unit_test(test_fuse_chain),
        cmocka_unit_test(test_fuse_idle),
        cmocka_unit_test(test_hostile_files_do_no_harm),
    };
    log_set_sink((struct log_sink){hear, NULL});
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
