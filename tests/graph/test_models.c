/* The models that come with the program: names, shapes and beginnings of their parameters equal torchvision's,
 * timm's, or those of libraries for segmentation (lists in tests/models, made by list.py there), and the
 * manual's models load. */
#include "base/log.h"
#include "base/memory.h"
#include "graph/model.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"

static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};

/* Properties of a model: parameters that are trained, how each kind of weight begins, and how many nodes
 * fusion takes away. */
struct expected {
    const char *arch;
    int64_t elements;
    int channels, size, classes;
    enum init conv, linear, linear_bias;
    int fused_away;
    bool listed;            /* tests/models has its list */
};

#define DEFAULT INIT_UNIFORM_FAN_IN
#define OUT INIT_KAIMING_FAN_OUT
#define IN INIT_KAIMING_FAN_IN
#define UNIFORM INIT_KAIMING_UNIFORM
#define CUT INIT_TRUNCATED_NORMAL

/* Elements are those that torchvision documents (num_params); for the CIFAR networks, those of the
 * formula in test_cifar_sizes. */
static const struct expected table[] = {
    {"airbench94", 1972802, 3, 32, 10, INIT_DIRAC, DEFAULT, INIT_CONSTANT, 6, false},
    {"alexnet", 61100840, 3, 224, 1000, DEFAULT, DEFAULT, DEFAULT, 3, true},
    {"cifar10_quick", 145578, 3, 32, 10, DEFAULT, DEFAULT, DEFAULT, 1, false},
    {"convnext_base", 88591464, 3, 224, 1000, CUT, CUT, INIT_ZERO, 1, true},
    {"convnext_small", 50223688, 3, 224, 1000, CUT, CUT, INIT_ZERO, 1, true},
    {"convnext_tiny", 28589128, 3, 224, 1000, CUT, CUT, INIT_ZERO, 1, true},
    {"convnextv2_tiny", 28635496, 3, 224, 1000, CUT, CUT, INIT_ZERO, 19, true},
    {"deeplabv3_resnet101", 60996202, 3, 512, 21, OUT, DEFAULT, DEFAULT, 141, true},
    {"deeplabv3_resnet50", 42004074, 3, 512, 21, OUT, DEFAULT, DEFAULT, 73, true},
    {"deeplabv3plus_resnet50", 26682725, 3, 512, 21, OUT, DEFAULT, DEFAULT, 74, true},
    {"deit3_base_patch16_224", 86585320, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"deit3_small_patch16_224", 22059496, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"deit_base_distilled_patch16_224", 87338192, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"deit_small_distilled_patch16_224", 22436432, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"deit_tiny_distilled_patch16_224", 5910800, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"densenet121", 7978856, 3, 224, 1000, IN, DEFAULT, INIT_ZERO, 121, true},
    {"efficientnet_b0", 5288548, 3, 224, 1000, OUT, INIT_UNIFORM_FAN_OUT, INIT_ZERO, 33, true},
    {"efficientnet_v2_m", 54139356, 3, 224, 1000, OUT, INIT_UNIFORM_FAN_OUT, INIT_ZERO, 104, true},
    {"efficientnet_v2_s", 21458488, 3, 224, 1000, OUT, INIT_UNIFORM_FAN_OUT, INIT_ZERO, 73, true},
    {"fcn_resnet50", 35322218, 3, 512, 21, OUT, DEFAULT, DEFAULT, 67, true},
    {"googlenet", 6624904, 3, 224, 1000, CUT, CUT, DEFAULT, 57, true},
    {"lenet5", 61706, 1, 28, 10, DEFAULT, DEFAULT, DEFAULT, 2, false},
    {"lraspp_mobilenet_v3_large", 3221538, 3, 512, 21, OUT, DEFAULT, DEFAULT, 32, true},
    {"mobilenet_v2", 3504872, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 35, true},
    {"mobilenet_v3_large", 5483032, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 31, true},
    {"mobilenet_v3_small", 2542856, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 23, true},
    {"mobilenetv4_conv_medium", 9715512, 3, 224, 1000, OUT, INIT_UNIFORM_FAN_OUT, INIT_ZERO, 39, true},
    {"mobilenetv4_conv_small", 3774024, 3, 224, 1000, OUT, INIT_UNIFORM_FAN_OUT, INIT_ZERO, 31, true},
    {"nnunet_2d", 46363571, 3, 512, 21, IN, IN, INIT_ZERO, 0, true},
    {"regnet_y_16gf", 83590140, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 73, true},
    {"regnet_y_32gf", 145046770, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 81, true},
    {"regnet_y_400mf", 4344144, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 65, true},
    {"regnet_y_8gf", 39381472, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 69, true},
    {"resnet101", 44549160, 3, 224, 1000, OUT, DEFAULT, DEFAULT, 133, true},
    {"resnet152", 60192808, 3, 224, 1000, OUT, DEFAULT, DEFAULT, 201, true},
    {"resnet18", 11689512, 3, 224, 1000, OUT, DEFAULT, DEFAULT, 25, true},
    {"resnet18_cifar", 11173962, 3, 32, 10, OUT, DEFAULT, DEFAULT, 25, false},
    {"resnet20", 269722, 3, 32, 10, IN, IN, DEFAULT, 28, true},
    {"resnet32", 464154, 3, 32, 10, IN, IN, DEFAULT, 46, false},
    {"resnet34", 21797672, 3, 224, 1000, OUT, DEFAULT, DEFAULT, 49, true},
    {"resnet44", 658586, 3, 32, 10, IN, IN, DEFAULT, 64, false},
    {"resnet50", 25557032, 3, 224, 1000, OUT, DEFAULT, DEFAULT, 65, true},
    {"resnet50_cifar", 23520842, 3, 32, 10, OUT, DEFAULT, DEFAULT, 65, false},
    {"resnet50d", 25576264, 3, 224, 1000, OUT, DEFAULT, DEFAULT, 67, true},
    {"resnet56", 853018, 3, 32, 10, IN, IN, DEFAULT, 82, false},
    {"resnext50_32x4d", 25028904, 3, 224, 1000, OUT, DEFAULT, DEFAULT, 65, true},
    {"shufflenet_v2_x1_0", 2278604, 3, 224, 1000, DEFAULT, DEFAULT, DEFAULT, 37, true},
    {"squeezenet1_1", 1235496, 3, 224, 1000, UNIFORM, INIT_NORMAL, INIT_ZERO, 1, true},
    {"swin_b", 87768224, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 26, true},
    {"swin_s", 49606258, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 26, true},
    {"swin_t", 28288354, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 14, true},
    {"unet", 31038933, 3, 512, 21, DEFAULT, DEFAULT, DEFAULT, 18, true},
    {"unet_resnet18", 14331109, 3, 512, 21, OUT, INIT_XAVIER_UNIFORM, INIT_ZERO, 35, true},
    {"unet_resnet34", 24439269, 3, 512, 21, OUT, INIT_XAVIER_UNIFORM, INIT_ZERO, 59, true},
    {"unet_resnet50", 32524005, 3, 512, 21, OUT, INIT_XAVIER_UNIFORM, INIT_ZERO, 75, true},
    {"vgg11_bn", 132868840, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 8, true},
    {"vgg16", 138357544, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 5, true},
    {"vgg16_bn", 138365992, 3, 224, 1000, OUT, INIT_NORMAL, INIT_ZERO, 13, true},
    {"vit_b_16", 86567656, 3, 224, 1000, CUT, INIT_ZERO, INIT_ZERO, 61, true},
    {"vit_b_32", 88224232, 3, 224, 1000, CUT, INIT_ZERO, INIT_ZERO, 61, true},
    {"vit_base_patch14_dinov2", 87348712, 3, 518, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"vit_h_14", 632045800, 3, 224, 1000, CUT, INIT_ZERO, INIT_ZERO, 161, true},
    {"vit_l_16", 304326632, 3, 224, 1000, CUT, INIT_ZERO, INIT_ZERO, 121, true},
    {"vit_patch4_cifar", 4771082, 3, 32, 10, DEFAULT, CUT, INIT_ZERO, 12, false},
    {"vit_small_patch14_dinov2", 22441192, 3, 518, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"vit_small_patch14_reg4_dinov2", 22442344, 3, 518, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"vit_small_patch16_224", 22050664, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"vit_tiny_patch16_224", 5717416, 3, 224, 1000, DEFAULT, CUT, INIT_ZERO, 25, true},
    {"wide_resnet50_2", 68883240, 3, 224, 1000, OUT, DEFAULT, DEFAULT, 65, true},
};
#define COUNT ((int)(sizeof table / sizeof *table))

static void load(const char *arch, struct graph *graph)
{
    struct model_options options = {.arch = arch, .folders = folders, .outputs = OUTPUTS_ANY, .dropout = -1};
    if (model_load(&options, graph) != OK) fail_msg("%s does not load", arch);
}

static void test_every_model_is_expected(void **state)
{
    int count;
    char **names = model_names(folders, &count);
    assert_int_equal(count, COUNT);
    for (int i = 0; i < count; i++) {
        assert_string_equal(names[i], table[i].arch);
        free(names[i]);
    }
    free(names);
}

static void test_sizes(void **state)
{
    for (const struct expected *e = table; e < table + COUNT; e++) {
        struct graph graph;
        load(e->arch, &graph);
        assert_string_equal(graph.arch, e->arch);
        assert_int_equal(graph_param_elements(&graph), e->elements);
        assert_true(shape_equal(graph.nodes[0].shape, shape_nhwc(1, e->size, e->size, e->channels)));
        assert_int_equal(graph.classes, e->classes);
        graph_free(&graph);
    }
}

/* ---- Lists ---- */

struct list {
    FILE *file;
    int count;          /* of parameters */
    const struct graph *graph;
    const char *arch;
};

static void next_param(struct list *list, const char *layer, const char *name, struct shape shape)
{
    char full[256], expected[SHAPE_TEXT], found[SHAPE_TEXT];
    snprintf(full, sizeof full, "%s%s%s", layer, name ? "." : "", name ? name : "");
    int index = graph_find_param(list->graph, full);
    if (index < 0) fail_msg("%s lacks %s", list->arch, full);
    const struct parameter *param = &list->graph->params[index];
    list->count++;
    assert_string_equal(shape_text(param->spec.shape, found), shape_text(shape, expected));
}

/* A line of the list stands for all parameters of a layer: see list.py. */
static void next_layer(struct list *list, const char *layer, const char *text)
{
    struct shape shape = {0}, scalar = {0};
    char *end = NULL;
    do {
        shape.dim[shape.rank++] = strtoll(text, &end, 10);
        text = end + 1;
    } while (*end == 'x' && shape.rank < 4);
    if (shape.rank == 3 || *end == '=') {
        next_param(list, layer, NULL, shape);
        return;
    }
    next_param(list, layer, "weight", shape);
    if (shape.rank == 1 || *end == '+') next_param(list, layer, "bias", shape_vector(shape.dim[0]));
    if (shape.rank > 1 || *end == '+') return;
    next_param(list, layer, "running_mean", shape);
    next_param(list, layer, "running_var", shape);
    next_param(list, layer, "num_batches_tracked", scalar);
}

static void compare_list(const char *arch, const struct graph *graph)
{
    char path[512], layer[200], shape[64];
    snprintf(path, sizeof path, SOURCEDIR "/tests/models/%s.txt", arch);
    struct list list = {.file = fopen(path, "r"), .graph = graph, .arch = arch};
    assert_non_null(list.file);
    while (fscanf(list.file, "%199s %63s", layer, shape) == 2) next_layer(&list, layer, shape);
    fclose(list.file);
    assert_int_equal(list.count, graph->param_count);
}

static void test_names_and_shapes_are_torchvisions(void **state)
{
    for (const struct expected *e = table; e < table + COUNT; e++) {
        if (!e->listed) continue;
        struct graph graph;
        load(e->arch, &graph);
        compare_list(e->arch, &graph);
        graph_free(&graph);
    }
}

/* ResNet-18 for CIFAR differs in the stem's kernel and the classes alone; the deeper CIFAR networks
 * have ResNet-20's layers, and more of the same. */
static void test_relatives(void **state)
{
    struct graph small, large;
    load("resnet18_cifar", &small);
    load("resnet18", &large);
    assert_int_equal(small.param_count, large.param_count);
    for (int i = 0; i < small.param_count; i++) {
        assert_string_equal(small.params[i].name, large.params[i].name);
        bool same = shape_equal(small.params[i].spec.shape, large.params[i].spec.shape);
        assert_int_equal(same, i != 0 && strncmp(small.params[i].name, "fc.", 3) != 0);
    }
    graph_free(&large);
    graph_free(&small);
    load("resnet20", &small);
    load("resnet56", &large);
    for (int i = 0; i < small.param_count; i++) {
        int twin = graph_find_param(&large, small.params[i].name);
        assert_true(twin >= 0);
        assert_true(shape_equal(small.params[i].spec.shape, large.params[twin].spec.shape));
    }
    graph_free(&large);
    graph_free(&small);
}

/* ResNet-(6n + 2): stem, three stages of n blocks, classifier; shortcuts have no parameters. */
static void test_cifar_sizes(void **state)
{
    static const char *const archs[] = {"resnet20", "resnet32", "resnet44", "resnet56"};
    for (int i = 0; i < 4; i++) {
        int64_t n = 3 + 2 * i, elements = 27 * 16 + 2 * 16 + 64 * 10 + 10, before = 16;
        for (int64_t width = 16; width <= 64; width *= 2) {
            elements += 9 * width * before + (2 * n - 1) * 9 * width * width + 2 * n * 2 * width;
            before = width;
        }
        struct graph graph;
        load(archs[i], &graph);
        assert_int_equal(graph_param_elements(&graph), elements);
        graph_free(&graph);
    }
}

/* Parameters whose networks have several kinds of beginnings, by name; the first row that matches counts. */
static const struct {
    const char *arch, *parameter;
    enum init init;
    double arg;
} beginnings[] = {
    {"unet_resnet*", "decoder.*.0.weight", UNIFORM, 0},
    {"deeplabv3plus_*", "decoder.*", DEFAULT, 0},
    {"deeplabv3_*", "*classifier.*", DEFAULT, 0},
    {"fcn_*", "*classifier.*", DEFAULT, 0},
    {"lraspp_*", "classifier.*", DEFAULT, 0},
    {"vit_[blh]_*", "class_token", INIT_ZERO, 0},
    {"vit_[blh]_*", "encoder.pos_embedding", INIT_NORMAL, 0.02},
    {"vit_[bl]_16", "conv_proj.weight", CUT, 0.0360844},       /* sqrt(1 / fan_in) */
    {"vit_b_32", "conv_proj.weight", CUT, 0.0180422},
    {"vit_h_14", "conv_proj.weight", CUT, 0.0412393},
    {"vit_[blh]_*", "conv_proj.bias", INIT_ZERO, 0},
    {"vit_[blh]_*", "*.in_proj_weight", INIT_XAVIER_UNIFORM, 0},
    {"vit_[blh]_*", "*.out_proj.weight", DEFAULT, 0},
    {"vit_[blh]_*", "*.mlp.*.weight", INIT_XAVIER_UNIFORM, 0},
    {"vit_[blh]_*", "*.mlp.*.bias", INIT_NORMAL, 1e-6},
    {"vit_[blh]_*", "*.ln*.weight", INIT_ONE, 0},
    {"vit_[blh]_*", "*", INIT_ZERO, 0},
    {"deit3_*", "*.gamma", INIT_CONSTANT, 1e-6},
    {"*_dinov2", "*.gamma", INIT_CONSTANT, 1e-5},
    {"deit_*", "dist_token", CUT, 0.02},
    {"*_patch*", "[cr][le][sg]_token", INIT_NORMAL, 1e-6},
    {"*_patch*", "pos_embed", CUT, 0.02},
    {"*_patch*", "patch_embed.proj.*", DEFAULT, 0},
    {"*_patch*", "*norm*.weight", INIT_ONE, 0},
    {"*_patch*", "*.weight", CUT, 0.02},
    {"*_patch*", "*", INIT_ZERO, 0},
    {"swin_*", "features.0.0.*", DEFAULT, 0},
    {"swin_*", "features.0.2.weight", INIT_ONE, 0},
    {"swin_*", "*norm*.weight", INIT_ONE, 0},
    {"swin_*", "*.relative_position_bias_table", CUT, 0.02},
    {"swin_*", "*.weight", CUT, 0.02},
    {"swin_*", "*", INIT_ZERO, 0},
};

/* True if a row is for it. */
static bool check_by_name(const char *arch, const struct parameter *parameter)
{
    const struct op_param *spec = &parameter->spec;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        if (fnmatch(beginnings[i].arch, arch, 0) || fnmatch(beginnings[i].parameter, parameter->name, 0))
            continue;
        if (beginnings[i].init == DEFAULT && spec->role != ROLE_WEIGHT && spec->role != ROLE_BIAS) break;
        bool number = spec->init == INIT_NORMAL || spec->init == CUT || spec->init == INIT_CONSTANT;
        if (spec->init != beginnings[i].init || (number && spec->init_arg != beginnings[i].arg))
            fail_msg("%s: %s begins otherwise", arch, parameter->name);
        return true;
    }
    return false;
}

/* Rank and role tell which kind of parameter it is; the last layer may be a convolution, too. */
static void check_init(const struct expected *e, const struct parameter *parameter, bool last)
{
    const struct op_param *spec = &parameter->spec;
    if (check_by_name(e->arch, parameter)) return;
    bool zero = strcmp(e->arch, "resnet50d") == 0 && strstr(parameter->name, ".bn3.");
    bool conv = spec->shape.rank == 4 && !last;
    bool whitens = spec->init == INIT_WHITEN && strcmp(e->arch, "airbench94") == 0;
    enum init wanted = conv ? e->conv : e->linear;
    /* timm divides the fan of a depthwise convolution's outputs by its groups, which leaves its inputs'. */
    if (strncmp(e->arch, "mobilenetv4", 11) == 0 && conv && spec->shape.dim[1] == 1) wanted = IN;
    if (spec->role == ROLE_WEIGHT && !whitens) assert_int_equal(spec->init, wanted);
    bool factor = spec->name[0] == '\0';        /* layer scale */
    enum init weight = zero || strstr(parameter->name, ".grn.") ? INIT_ZERO : INIT_ONE;
    enum init norm = spec->name[0] == 'w' ? weight : factor ? INIT_CONSTANT : INIT_ZERO;
    if (spec->role == ROLE_NORM) assert_int_equal(spec->init, norm);
    if (factor) assert_true(spec->init_arg == (strcmp(e->arch, "airbench94") == 0 ? 0.111 : 1e-6));
    if (spec->init == INIT_NORMAL || spec->init == INIT_TRUNCATED_NORMAL)
        assert_true(spec->init_arg == (strncmp(e->arch, "convnext", 8) == 0 ? 0.02 : 0.01));
}

static void test_beginnings_are_torchvisions(void **state)
{
    for (const struct expected *e = table; e < table + COUNT; e++) {
        struct graph graph;
        load(e->arch, &graph);
        for (int i = 0; i < graph.param_count; i++)
            check_init(e, &graph.params[i], i + 2 >= graph.param_count);
        assert_int_equal(graph.params[graph.param_count - 1].spec.init, e->linear_bias);
        graph_free(&graph);
    }
}

static void test_fusion_takes_nodes_away_and_no_parameters(void **state)
{
    for (const struct expected *e = table; e < table + COUNT; e++) {
        struct graph graph, whole;
        load(e->arch, &whole);
        load(e->arch, &graph);
        assert_int_equal(fuse(&graph), OK);
        if (e->fused_away != whole.count - graph.count)
            fail_msg("%s: fusion takes away %d nodes", e->arch, whole.count - graph.count);
        assert_int_equal(graph.param_count, whole.param_count);
        for (int i = 0; i < graph.param_count; i++) {
            const struct node *node = &graph.nodes[graph.params[i].node];
            assert_string_equal(graph.params[i].name, whole.params[i].name);
            assert_memory_equal(graph.params[i].name, node->name, strlen(node->name));
        }
        graph_free(&graph);
        graph_free(&whole);
    }
}

/* The data's classes and size reach every model. */
static void test_small_images(void **state)
{
    for (const struct expected *e = table; e < table + COUNT; e++) {
        struct model_options options = {.arch = e->arch, .folders = folders, .outputs = OUTPUTS_ANY,
                                        .classes = 7, .dropout = 0};
        struct graph graph;
        options.size_h = e->size, options.size_w = e->size + (strcmp(e->arch, "nnunet_2d") == 0 ? 128 : 32);
        if (strcmp(e->arch, "lenet5") == 0) options.size_w = 0;
        assert_int_equal(model_load(&options, &graph), OK);
        assert_int_equal(graph.classes, 7);
        graph_free(&graph);
    }
}

/* ---- The manual ---- */

/* A line of the page as a reader sees it, or NULL where it is no text. */
static const char *shown(char *line)
{
    char *to = line;
    if (line[0] == '.') return NULL;
    for (const char *from = line; *from; from++) {
        if (from[0] == '\\' && (from[1] == '-' || from[1] == 'e')) {
            *to++ = from[1] == 'e' ? '\\' : '-';
            from++;
        } else if (from[0] == '\\' && from[1] == '&') {
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return line;
}

static void try_example(const char *text, int *models)
{
    struct model_options options = {.dropout = -1};
    struct graph graph;
    if (model_load_text(&options, "amptrain-model.5", text, &graph) != OK) fail_msg("refused:\n%s", text);
    fuse(&graph);
    graph_free(&graph);
    ++*models;
}

static char said[1024];

static void hear(void *context, enum log_level level, const char *line)
{
    (void)context, (void)level;
    snprintf(said, sizeof said, "%s", line);
}

/* "NAME:LINE: ..." in the manual is what the program says of the model before it, with a letter
 * left out. */
static void try_message(const char *text, const char *model, int *messages)
{
    static const char *const slips[][2] = {
        {" filters=16 ", " filter=16 "},
        {"conv2 = conv ", "conv2 = cov "},
    };
    struct model_options options = {.dropout = -1};
    char file[64];
    if (sscanf(text, "%63[a-z.]:", file) != 1 || !strstr(file, ".ini")) return;
    struct text wrong = {0};
    const char *slip = strstr(model, slips[*messages][0]);
    assert_non_null(slip);
    text_add(&wrong, "%.*s%s%s", (int)(slip - model), model, slips[*messages][1],
             slip + strlen(slips[*messages][0]));
    struct graph graph;
    assert_int_equal(model_load_text(&options, file, wrong.data, &graph), USAGE);
    assert_memory_equal(said, text, strlen(said));
    text_free(&wrong);
    ++*messages;
}

static void test_manual(void **state)
{
    FILE *page = fopen(SOURCEDIR "/man/amptrain-model.5.in", "r");
    assert_non_null(page);
    log_set_sink((struct log_sink){hear, NULL});
    char line[1024];
    struct text example = {0}, model = {0};
    bool inside = false;
    int models = 0, messages = 0;
    while (fgets(line, sizeof line, page)) {
        if (strncmp(line, ".EX", 3) == 0) inside = true;
        if (strncmp(line, ".EE", 3) == 0) {
            inside = false;
            try_message(example.data, model.data, &messages);
            if (strstr(example.data, "[layers]")) {
                try_example(example.data, &models);
                text_free(&model);
                text_add(&model, "%s", example.data);
            }
            text_free(&example);
        }
        const char *text = shown(line);
        if (inside && text) text_add(&example, "%s", text);
    }
    fclose(page);
    text_free(&model);
    log_set_sink((struct log_sink){NULL, NULL});
    assert_int_equal(models, 5);
    assert_int_equal(messages, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_model_is_expected),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_names_and_shapes_are_torchvisions),
        cmocka_unit_test(test_relatives),
        cmocka_unit_test(test_cifar_sizes),
        cmocka_unit_test(test_beginnings_are_torchvisions),
        cmocka_unit_test(test_fusion_takes_nodes_away_and_no_parameters),
        cmocka_unit_test(test_small_images),
        cmocka_unit_test(test_manual),
    };
    return cmocka_run_group_tests_name("models", tests, NULL, NULL);
}
