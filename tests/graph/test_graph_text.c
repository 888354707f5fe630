/* Graphs as text: what is written reads back as the same network, and differences are named. */
#include "base/memory.h"
#include "graph/graph_text.h"
#include "graph/model.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"

static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};

static void assert_same_graphs(const struct graph *a, const struct graph *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->param_count, b->param_count);
    for (int i = 0; i < a->count; i++) {
        assert_string_equal(a->nodes[i].name, b->nodes[i].name);
        assert_ptr_equal(a->nodes[i].op, b->nodes[i].op);
        assert_true(shape_equal(a->nodes[i].shape, b->nodes[i].shape));
    }
    for (int i = 0; i < a->param_count; i++) {
        assert_string_equal(a->params[i].name, b->params[i].name);
        assert_true(shape_equal(a->params[i].spec.shape, b->params[i].spec.shape));
        assert_int_equal(a->params[i].spec.init, b->params[i].spec.init);
    }
}

static void installed_models_read_back(void **state)
{
    int count;
    char **names = model_names(folders, &count);
    assert_true(count > 10);
    for (int i = 0; i < count; i++) {
        struct graph graph, again;
        struct text text = {0}, twice = {0};
        struct reason reason;
        const struct model_options options = {
            .arch = names[i], .folders = folders, .outputs = OUTPUTS_ANY, .classes = 7, .dropout = 0.3};
        const struct model_options none = {.outputs = OUTPUTS_ANY, .dropout = -1};
        assert_int_equal(model_load(&options, &graph), OK);
        graph_text(&graph, &text);
        assert_int_equal(model_load_text(&none, "text", text.data, &again), OK);
        assert_same_graphs(&graph, &again);
        graph_text(&again, &twice);
        assert_string_equal(text.data, twice.data);
        assert_true(graph_text_same(text.data, twice.data, GRAPH_SAME_TRAINING, &reason));
        text_free(&text);
        text_free(&twice);
        graph_free(&graph);
        graph_free(&again);
    }
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
}

/* A text has a layer a line, whatever its length; a model file does not. */
static void long_lines_read_back(void **state)
{
    struct text model = {0}, text = {0}, twice = {0}, join = {0};
    const struct model_options options = {.classes = 3, .dropout = -1};
    struct graph graph, again;
    text_add(&model, "[input]\nchannels = 1\nsize = 8\n[layers]\n");
    for (int i = 0; i < 40; i++) {
        text_add(&model, "branch.%d = conv input filters=1 kernel=1\n", i);
        text_add(&join, " branch.%d%s", i, i % 8 == 7 ? "\n   " : "");
    }
    text_add(&model, "join = concat%s\npool = globalavgpool join\nfc = linear pool units=$classes\n", join.data);
    assert_int_equal(model_load_text(&options, "text", model.data, &graph), OK);
    graph_text(&graph, &text);
    assert_int_equal(model_load_text(&options, "text", text.data, &again), OK);
    assert_same_graphs(&graph, &again);
    graph_text(&again, &twice);
    assert_string_equal(text.data, twice.data);
    text_free(&model);
    text_free(&join);
    text_free(&text);
    text_free(&twice);
    graph_free(&graph);
    graph_free(&again);
}

static char *text_of(const char *input, const char *layers)
{
    char *model = text_format("[input]\n%s\n%s\n", input, layers);
    const struct model_options options = {.classes = 3, .dropout = -1};
    struct graph graph;
    struct text text = {0};
    assert_int_equal(model_load_text(&options, "text", model, &graph), OK);
    graph_text(&graph, &text);
    graph_free(&graph);
    free(model);
    return text.data;
}

#define INPUT "channels = 1\nsize = 8"
#define BEFORE "[layers]\nconv = conv input filters=4 kernel=3 pad=1\n"
#define AFTER "pool = globalavgpool act\nfc = linear pool units=$classes"

static void the_words(void **state)
{
    char *text = text_of(INPUT, BEFORE "act = leaky_relu conv slope=0.25\n" AFTER);
    assert_string_equal(text, "[input]\nchannels = 1\nclasses = 3\nsize = 8\n[layers]\n"
                              "conv = conv input filters=4 kernel=3 pad=1\nact = leaky_relu conv slope=0.25\n"
                              "pool = globalavgpool act\nfc = linear pool units=3\n");
    free(text);
}

/* Blocks written out, comments, defaults that are named, the size of images: all that is the same network. */
static void what_does_not_count(void **state)
{
    static const char *const others[][2] = {
        {"channels = 1\nsize = 16", BEFORE "act = relu conv\n" AFTER},
        {INPUT, "; a comment\n[layers]\nconv = conv input stride=1 kernel=3 pad=1 filters=4 bias=yes\n"
                "act=relu conv\n" AFTER},
        {INPUT, "[block:b]\n$k = 3\nconv = conv in filters=4 kernel=$k pad=1\n" BEFORE
                "act = relu conv\n" AFTER},
    };
    char *one = text_of(INPUT, BEFORE "act = relu conv\n" AFTER);
    struct reason reason;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *other = text_of(others[i][0], others[i][1]);
        assert_true(graph_text_same(one, other, GRAPH_SAME_TRAINING, &reason));
        free(other);
    }
    free(one);
}

static void differences(void **state)
{
    static const struct {
        const char *layers, *said;
    } cases[] = {
        {BEFORE "act = leaky_relu conv\n" AFTER, "layer 'act' is 'leaky_relu conv', not 'relu conv'"},
        {"[layers]\nconv = conv input filters=4 kernel=3 pad=1 stride=2\nact = relu conv\n" AFTER,
         "layer 'conv' is 'conv input filters=4 kernel=3 stride=2 pad=1', not 'conv input filters=4 k"},
        {BEFORE "more = relu conv\nact = relu more\n" AFTER, "layer 'more' is new"},
        {BEFORE "other = relu conv\npool = globalavgpool other\nfc = linear pool units=3",
         "layer 'act' is missing"},
        {BEFORE "act = relu conv\npool = globalavgpool act\nfc = linear pool units=3\nlast = relu fc",
         "layer 'last' is new"},
        {"[layers]\nact = relu input\nconv = conv act filters=4 kernel=3 pad=1\npool = globalavgpool conv\n"
         "fc = linear pool units=3", "layer 'act' is in a different position"},
    };
    char *one = text_of(INPUT, BEFORE "act = relu conv\n" AFTER);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *other = text_of(INPUT, cases[i].layers);
        struct reason reason;
        assert_false(graph_text_same(one, other, GRAPH_SAME_TRAINING, &reason));
        if (!strstr(reason.text, cases[i].said)) fail_msg("%s", reason.text);
        assert_false(graph_text_same(other, one, GRAPH_SAME_TRAINING, &reason));
        free(other);
    }
    free(one);
}

/* Dropout's rate, batch norm's momentum, and the number of classes, which the same width elsewhere is not. */
static void weights_alone(void **state)
{
    static const struct {
        const char *layers, *classes;
        bool same;
    } cases[] = {
        {"drop = dropout input rate=0.5\nfc = linear drop units=3", "3", true},
        {"drop = dropout input rate=0.2\nfc = linear drop units=5", "5", true},
        {"drop = drop_path input rate=0.2\nfc = linear drop units=3", "3", false},
        {"drop = dropout input rate=0.2\nfc = linear drop units=5 bias=no", "5", false},
        {"drop = dropout input rate=0.2\nfc = linear drop units=4", "5", false},
    };
    static const char *const norms[] = {"bn = batchnorm input momentum=0.5", "bn = batchnorm input",
                                        "bn = batchnorm input eps=0.5"};
    static const char model[] = "[input]\nchannels = 1\nclasses = %s\n[layers]\n%s\n";
    char *one = text_format("[input]\nchannels = 1\nclasses = 3\n[layers]\n%s\n",
                            "drop = dropout input rate=0.2\nfc = linear drop units=3");
    struct reason reason;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *other = text_format(model, cases[i].classes, cases[i].layers);
        assert_int_equal(graph_text_same(one, other, GRAPH_SAME_WEIGHTS, &reason), cases[i].same);
        assert_int_equal(graph_text_same(other, one, GRAPH_SAME_WEIGHTS, &reason), cases[i].same);
        assert_false(graph_text_same(one, other, GRAPH_SAME_TRAINING, &reason));
        free(other);
    }
    free(one);
    char *text[3];
    for (int i = 0; i < 3; i++) text[i] = text_format(model, "3", norms[i]);
    assert_true(graph_text_same(text[0], text[1], GRAPH_SAME_WEIGHTS, &reason));
    assert_false(graph_text_same(text[0], text[1], GRAPH_SAME_TRAINING, &reason));
    assert_false(graph_text_same(text[2], text[1], GRAPH_SAME_WEIGHTS, &reason));
    for (int i = 0; i < 3; i++) free(text[i]);
}

/* Texts that a damaged or foreign checkpoint may hold. */
static void any_text(void **state)
{
    static const char *const texts[] = {"", "\n", "[layers]", "[layers]\n", "[layers]\na", "[layers]\na = ",
                                        "[layers]\n = \n", "[layers]\na\n = b\n", " = \n[layers]\n\n"};
    struct reason reason;
    char *one = text_of(INPUT, BEFORE "act = relu conv\n" AFTER);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_false(graph_text_same(texts[i], one, GRAPH_SAME_TRAINING, &reason));
        assert_true(graph_text_same(texts[i], texts[i], GRAPH_SAME_TRAINING, &reason));
    }
    free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(installed_models_read_back), cmocka_unit_test(long_lines_read_back),
        cmocka_unit_test(the_words),
        cmocka_unit_test(what_does_not_count),        cmocka_unit_test(differences),
        cmocka_unit_test(any_text),
        cmocka_unit_test(weights_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
