/* Weights of other libraries: their names and shapes, and files that differ from the network that they are
 * for, which are adapted or refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/deflated.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_names.h"
#include "exec/store.h"
#include "graph/model.h"
#include "tests/support/caught.h"
#include "tests/support/place.h"
#include "tests/support/refuse.h"
#include "tests/support/rounds.h"
#include "tests/support/torch_case.h"
#include "tests/support/unit.h"

/* ---- Names and shapes of whole networks, as the libraries have them: tests/models/names.py ---- */

static const struct {
    const char *library, *arch;
    int count;
    uint32_t crc;
} networks[] = {
    {"hf", "convnext_tiny", 182, 0x0ae266fe},
    {"hf", "regnet_y_400mf", 384, 0x92bc969b},
    {"hf", "deit_tiny_distilled_patch16_224", 203, 0x563e5481},
    {"hf", "convnextv2_tiny", 200, 0x624b11d7},
    {"hf", "resnet18", 122, 0x323bc132},
    {"hf", "resnet50", 320, 0xb179fe29},
    {"hf", "vit_tiny_patch16_224", 200, 0x500018b6},
    {"hf", "vit_b_32", 200, 0xd6f410ff},
    {"hf", "vit_base_patch14_dinov2", 224, 0x62254287},
    {"hf", "vit_small_patch14_reg4_dinov2", 225, 0x1e619c2f},
    {"hf", "swin_s", 425, 0x7a4cd3b2},
    {"timm", "convnext_tiny", 182, 0x3b94fd45},
    {"timm", "convnext_base", 344, 0xcef86eb6},
    {"timm", "convnextv2_tiny", 200, 0x99e73a08},
    {"timm", "deit3_small_patch16_224", 176, 0xa9b31682},
    {"timm", "deit_tiny_distilled_patch16_224", 155, 0xbcf94ecd},
    {"timm", "densenet121", 727, 0xc84f92cc},
    {"timm", "efficientnet_b0", 360, 0x795a39d5},
    {"timm", "mobilenet_v2", 314, 0x362a2dc3},
    {"timm", "mobilenet_v3_large", 312, 0xc11d97f3},
    {"timm", "mobilenet_v3_small", 244, 0xb02ed566},
    {"timm", "mobilenetv4_conv_medium", 464, 0x215fa32e},
    {"timm", "regnet_y_400mf", 384, 0x1246d04e},
    {"timm", "resnet18", 122, 0x74387e70},
    {"timm", "resnet50d", 332, 0xacae3f5d},
    {"timm", "resnext50_32x4d", 320, 0xbb70626d},
    {"timm", "swin_t", 173, 0xa5153347},
    {"timm", "vgg11_bn", 62, 0x9925f49f},
    {"timm", "vgg16", 32, 0x88475678},
    {"timm", "vit_b_16", 152, 0x716b7576},
    {"timm", "vit_small_patch14_reg4_dinov2", 177, 0x59f80f5b},
    {"timm", "vit_tiny_patch16_224", 152, 0x8844953c},
    {"timm", "wide_resnet50_2", 320, 0x6e9bb031},
};

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void check_network(size_t row)
{
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    struct model_options options = {.arch = networks[row].arch, .folders = folders, .dropout = -1};
    struct weights_names names;
    struct graph graph;
    assert_int_equal(model_load(&options, &graph), OK);
    assert_int_equal(weights_names_open(networks[row].library, graph.arch, &names), OK);
    assert_true(names.known);
    size_t room = (size_t)graph.param_count * WEIGHTS_SOURCES_MAX;
    char **lines = memory_new(room, sizeof *lines), text[SHAPE_TEXT];
    int count = 0;
    for (int i = 0; i < graph.param_count; i++) {
        struct shape shape = graph.params[i].spec.shape;
        struct weights_part parts[WEIGHTS_SOURCES_MAX];
        char *name = weights_names_apply(&names, graph.params[i].name, &shape);
        int own = weights_names_divide(&names, name, shape, parts);
        for (int k = 0; k < own; k++) {
            lines[count++] = text_format("%s %s\n", parts[k].name, shape_text(parts[k].shape, text));
            free(parts[k].name);
        }
        free(name);
    }
    qsort(lines, (size_t)count, sizeof *lines, by_text);
    uint32_t crc = 0;
    for (int i = 0; i < count; i++) {
        crc = deflated_crc(crc, (const uint8_t *)lines[i], strlen(lines[i]));
        free(lines[i]);
    }
    free(lines);
    if (count != networks[row].count || crc != networks[row].crc)
        fail_msg("%s's names of %s differ", networks[row].library, networks[row].arch);
    weights_names_close(&names);
    graph_free(&graph);
}

static void test_names_of_libraries(void **state)
{
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) check_network(i);
}

static void test_networks_that_a_library_lacks(void **state)
{
    struct weights_names names;
    assert_int_equal(weights_names_open("hf", "vgg16", &names), OK);
    assert_false(names.known);
    weights_names_close(&names);
    assert_int_equal(weights_names_open("torchvision", "resnet50d", &names), OK);
    assert_false(names.known);
    weights_names_close(&names);
    assert_int_equal(weights_names_open("a library without a file", "vgg16", &names), OK);
    assert_false(names.known);
    weights_names_close(&names);
}

/* ---- Files for a small network whose arch matches timm's rules of VGG ---- */

#define NETWORK(channels)                                                                                \
    "[input]\nchannels = " channels "\nsize = 7\n[layers]\n"                                             \
    "features.0 = conv input filters=2 kernel=3 pad=1\nflat = flatten features.0\n"                      \
    "classifier.0 = linear flat units=4\nrelu = relu classifier.0\n"                                     \
    "classifier.6 = linear relu units=$classes\n"

struct item {
    const char *name;
    struct shape shape;
};
#define VECTOR(n) {.rank = 1, .dim = {n, 1, 1, 1}}
#define MATRIX(n, m) {.rank = 2, .dim = {n, m, 1, 1}}
#define FILTERS(k, c, r, s) {.rank = 4, .dim = {k, c, r, s}}
#define FEATURES {"features.0.weight", FILTERS(2, 3, 3, 3)}, {"features.0.bias", VECTOR(2)}
#define HIDDEN {"classifier.0.weight", MATRIX(4, 98)}, {"classifier.0.bias", VECTOR(4)}
#define HEAD {"classifier.6.weight", MATRIX(3, 4)}, {"classifier.6.bias", VECTOR(3)}
#define TIMM_HIDDEN {"pre_logits.fc1.weight", FILTERS(4, 2, 7, 7)}, {"pre_logits.fc1.bias", VECTOR(4)}
#define TIMM_HEAD {"head.fc.weight", MATRIX(3, 4)}, {"head.fc.bias", VECTOR(3)}

enum how { EXACT, TUNED, LENIENT };

static const struct file {
    const char *what, *prefix;
    const char *channels;            /* of the network; NULL: 3 */
    struct item items[9];
    enum how how;
    enum status status;
    const char *said;                /* "": nothing */
} files[] = {
    {"our names", "", NULL, {FEATURES, HIDDEN, HEAD}, EXACT, OK, ""},
    {"timm's names and shapes", "", NULL,
     {FEATURES, TIMM_HIDDEN, TIMM_HEAD}, EXACT, OK, "its names are those of timm"},
    {"timm's names and one of ours", "", NULL,
     {FEATURES, TIMM_HIDDEN, TIMM_HEAD, {"classifier.6.bias", VECTOR(3)}}, EXACT, BAD_CHECKPOINT,
     "tensors that are not in this model: classifier.6.bias"},
    {"timm's names, another shape", "", NULL,
     {FEATURES, {"pre_logits.fc1.weight", FILTERS(4, 98, 1, 1)}, {"pre_logits.fc1.bias", VECTOR(4)},
      TIMM_HEAD},
     TUNED, BAD_CHECKPOINT, "pre_logits.fc1.weight (4x98x1x1, not 4x2x7x7)"},
    {"DataParallel", "module.", NULL, {FEATURES, HIDDEN, HEAD}, EXACT, OK, "'module.' before every name"},
    {"torch.compile", "_orig_mod.", NULL, {FEATURES, HIDDEN, HEAD}, EXACT, OK, "'_orig_mod.' before every"},
    {"a class around it", "model.module._orig_mod.", NULL, {FEATURES, HIDDEN, HEAD}, EXACT, OK,
     "'_orig_mod.' before every name is removed"},
    {"a class of another name around it", "net.backbone.", NULL, {FEATURES, HIDDEN, HEAD}, EXACT, OK,
     "'net.backbone.' before every name is removed"},
    {"... and timm's names", "net.", NULL, {FEATURES, TIMM_HIDDEN, TIMM_HEAD}, TUNED, OK,
     "'net.' before every name is removed"},
    {"... and a backbone", "net.", NULL, {FEATURES, HIDDEN}, TUNED, OK,
     "4 of 6 tensors of the network are loaded"},
    {"... and another network", "net.", NULL, {{"conv1.weight", FILTERS(8, 3, 7, 7)}, {"fc.bias", VECTOR(8)}},
     TUNED, BAD_CHECKPOINT, "tensors that are not in this model: net.conv1.weight, net.fc.bias"},
    {"all of another network, not strict", "", NULL,
     {{"conv1.weight", FILTERS(8, 3, 7, 7)}, {"fc.bias", VECTOR(8)}}, LENIENT, BAD_CHECKPOINT,
     "0 of 6 tensors of the network would be loaded, no weights among them"},
    {"how many tensors", "", NULL, {FEATURES, HIDDEN, HEAD}, TUNED, OK,
     "6 of 6 tensors of the network are loaded"},
    {"a backbone", "", NULL, {FEATURES, HIDDEN}, TUNED, OK,
     "has no weights for the classifier 'classifier.6', which is initialised"},
    {"a backbone, to be evaluated", "", NULL, {FEATURES, HIDDEN}, EXACT, BAD_CHECKPOINT,
     "missing tensors: classifier.6.weight, classifier.6.bias"},
    {"another head", "", NULL, {FEATURES, HIDDEN, {"fc.weight", MATRIX(9, 4)}}, TUNED, OK,
     "of another head, and left out: fc.weight"},
    {"half of a head", "", NULL, {FEATURES, HIDDEN, {"classifier.6.bias", VECTOR(3)}}, TUNED, OK,
     "has no weights for the classifier 'classifier.6', which is initialised"},
    {"other classes", "", NULL,
     {FEATURES, HIDDEN, {"classifier.6.weight", MATRIX(9, 4)}, {"classifier.6.bias", VECTOR(9)}}, TUNED, OK,
     "has 9 classes, this model 3"},
    {"a second head", "", NULL, {FEATURES, HIDDEN, HEAD, {"aux.weight", MATRIX(9, 4)}}, TUNED,
     BAD_CHECKPOINT, "tensors that are not in this model: aux.weight"},
    {"a second head, not strict", "", NULL, {FEATURES, HIDDEN, HEAD, {"aux.weight", MATRIX(9, 4)}}, LENIENT,
     OK, "tensors that are not in this model: aux.weight"},
    {"half of a network", "", NULL, {FEATURES, HEAD}, TUNED, BAD_CHECKPOINT,
     "missing tensors: classifier.0.weight, classifier.0.bias"},
    {"half of a network, not strict", "", NULL, {FEATURES, HEAD}, LENIENT, OK,
     "missing tensors: classifier.0.weight, classifier.0.bias"},
    {"another width", "", NULL, {FEATURES, {"classifier.0.weight", MATRIX(4, 96)},
     {"classifier.0.bias", VECTOR(4)}, HEAD}, TUNED, BAD_CHECKPOINT, "classifier.0.weight (4x96, not 4x98)"},
    {"another width, not strict", "", NULL, {FEATURES, {"classifier.0.weight", MATRIX(4, 96)},
     {"classifier.0.bias", VECTOR(4)}, HEAD}, LENIENT, OK, "classifier.0.weight (4x96, not 4x98)"},
    {"another network", "", NULL, {{"conv1.weight", FILTERS(8, 3, 7, 7)}, {"fc.weight", MATRIX(9, 8)}}, TUNED,
     BAD_CHECKPOINT, "missing tensors: features.0.weight, features.0.bias, classifier.0.weight"},
    {"many other tensors", "", NULL,
     {{"a", VECTOR(1)}, {"b", VECTOR(1)}, {"c", VECTOR(1)}, {"d", VECTOR(1)}, {"e", VECTOR(1)},
      {"f", VECTOR(1)}, {"g", VECTOR(1)}, {"h", VECTOR(1)}, {"i", VECTOR(1)}}, TUNED, BAD_CHECKPOINT,
     "tensors that are not in this model: a, b, c, d, e, f, g, h, and 1 more"},
    {"no tensors", "", NULL, {{NULL, VECTOR(0)}}, TUNED, BAD_CHECKPOINT, "missing tensors: features.0"},
    {"grey images", "", "1", {FEATURES, HIDDEN, HEAD}, TUNED, OK,
     "is for images of 3 channels: filters of the first convolution are summed over them"},
    {"grey images, to be evaluated", "", "1", {FEATURES, HIDDEN, HEAD}, EXACT, BAD_CHECKPOINT,
     "features.0.weight (2x3x3x3, not 2x1x3x3)"},
    {"images of 4 channels", "", "4", {FEATURES, HIDDEN, HEAD}, TUNED, OK,
     "filters of the first convolution are repeated for this model's"},
    {"other filters", "", "1", {{"features.0.weight", FILTERS(2, 3, 5, 5)}, {"features.0.bias", VECTOR(2)},
     HIDDEN, HEAD}, TUNED, BAD_CHECKPOINT, "features.0.weight (2x3x5x5, not 2x1x3x3)"},
    {"wider filters", "", "1", {{"features.0.weight", FILTERS(2, 3, 3, 5)}, {"features.0.bias", VECTOR(2)},
     HIDDEN, HEAD}, TUNED, BAD_CHECKPOINT, "features.0.weight (2x3x3x5, not 2x1x3x3)"},
    {"more filters", "", "1", {{"features.0.weight", FILTERS(4, 3, 3, 3)}, {"features.0.bias", VECTOR(2)},
     HIDDEN, HEAD}, TUNED, BAD_CHECKPOINT, "features.0.weight (4x3x3x3, not 2x1x3x3)"},
    {"filters of no images", "", "1", {{"features.0.weight", FILTERS(2, 0, 3, 3)},
     {"features.0.bias", VECTOR(2)}, HIDDEN, HEAD}, TUNED, BAD_CHECKPOINT,
     "features.0.weight (2x0x3x3, not 2x1x3x3)"},
    {"filters as a matrix", "", "1", {{"features.0.weight", MATRIX(2, 27)}, {"features.0.bias", VECTOR(2)},
     HIDDEN, HEAD}, TUNED, BAD_CHECKPOINT, "features.0.weight (2x27, not 2x1x3x3)"},
    {"a filter as a bias", "", "1", {{"features.0.weight", FILTERS(2, 3, 3, 3)},
     {"features.0.bias", FILTERS(2, 1, 1, 1)}, HIDDEN, HEAD}, TUNED, BAD_CHECKPOINT,
     "features.0.bias (2x1x1x1, not 2)"},
    {"another bias", "", "1", {{"features.0.weight", FILTERS(2, 3, 3, 3)}, {"features.0.bias", VECTOR(3)},
     HIDDEN, HEAD}, TUNED, BAD_CHECKPOINT, "features.0.bias (3, not 2)"},
    {"numbers as a bias and as a matrix", "", NULL, {{"features.0.weight", VECTOR(1)},
     {"features.0.bias", VECTOR(1)}, HIDDEN, HEAD}, TUNED, BAD_CHECKPOINT,
     "features.0.weight (1, not 2x3x3x3), features.0.bias (1, not 2)"},
    {"a head of another width", "", NULL,
     {FEATURES, HIDDEN, {"classifier.6.weight", MATRIX(3, 5)}, {"classifier.6.bias", VECTOR(3)}}, TUNED,
     BAD_CHECKPOINT, "classifier.6.weight (3x5, not 3x4)"},
    {"a head for another network", "", NULL,
     {FEATURES, HIDDEN, {"classifier.6.weight", MATRIX(9, 5)}, {"classifier.6.bias", VECTOR(9)}}, TUNED,
     BAD_CHECKPOINT, "classifier.6.weight (9x5, not 3x4)"},
    {"a head that convolves", "", NULL,
     {FEATURES, HIDDEN, {"classifier.6.weight", FILTERS(9, 4, 1, 1)}, {"classifier.6.bias", VECTOR(9)}}, TUNED,
     BAD_CHECKPOINT, "classifier.6.weight (9x4x1x1, not 3x4)"},
    {"what follows from shapes", "", NULL,
     {FEATURES, HIDDEN, HEAD, {"attn.relative_position_index", MATRIX(2, 2)}, {"attn.attn_mask", MATRIX(2, 2)},
      {"mask_token", VECTOR(4)}}, EXACT, OK, ""},
    {"a token of another part", "", NULL, {FEATURES, HIDDEN, HEAD, {"embeddings.mask_token", VECTOR(4)}},
     EXACT, OK, ""},
};
#define FILES (int)(sizeof files / sizeof *files)

static char folder[] = "/tmp/test_weights.XXXXXX";
static char path[64];

static enum status count_up(void *context, int item, void *data)
{
    const struct safetensors_item *items = context;
    for (int64_t i = 0; i < shape_count(items[item].shape); i++) ((float *)data)[i] = (float)(i + 1);
    return OK;
}

static void write_file(const struct file *file)
{
    struct safetensors_item items[9];
    int count = 0;
    for (; count < 9 && file->items[count].name; count++)
        items[count] = (struct safetensors_item){text_format("%s%s", file->prefix, file->items[count].name),
                                                 F32, file->items[count].shape};
    const struct safetensors_content content = {items, count, NULL, 0, count_up, items};
    assert_int_equal(safetensors_write(path, &content), OK);
    for (int i = 0; i < count; i++) free((char *)items[i].name);
}

/* The parameter's elements must be the file's, where it has the tensor, or what they were. */
static void check_values(struct store *store, const char *name, const float *expected, int count)
{
    float values[512];
    int param = graph_find_param(store->graph, name);
    assert_int_equal(shape_count(store->graph->params[param].spec.shape), count);
    assert_int_equal(store_read(store, param, STORE_MASTER, values), OK);
    for (int i = 0; i < count; i++)
        if (values[i] != expected[i]) fail_msg("%s[%d] is %g, not %g", name, i, values[i], expected[i]);
}

static void check_filters(const struct file *file, struct store *store)
{
    float expected[72];
    int channels = file->channels ? atoi(file->channels) : 3;
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < 9; p++) {
            float first = (float)(k * 27 + p + 1);
            if (channels == 1) expected[k * 9 + p] = 3 * first + 27;
            for (int c = 0; channels > 1 && c < channels; c++)
                expected[(k * channels + c) * 9 + p] = (first + (float)(9 * (c % 3))) * 3 / (float)channels;
        }
    check_values(store, "features.0.weight", expected, 18 * channels);
}

static void try_file(const struct file *file)
{
    struct device *device = place_open(1);
    struct model_options options = {.classes = 3, .dropout = -1};
    const char *text = !file->channels ? NETWORK("3") : *file->channels == '1' ? NETWORK("1") : NETWORK("4");
    const struct weights_options how = {.fine_tuned = file->how != EXACT, .lenient = file->how == LENIENT};
    struct graph graph;
    struct store store;
    struct caught caught;
    write_file(file);
    assert_int_equal(model_load_text(&options, "vgg.ini", text, &graph), OK);
    assert_int_equal(store_open(device, &graph, &(struct store_options){.low = F32}, &store), OK);
    assert_int_equal(store_init(&store, 1), OK);
    caught_begin(&caught);
    enum status checked = weights_check(path, &how, &graph), loaded = weights_load(path, &how, &store);
    caught_end(&caught);
    if (checked != file->status || loaded != file->status)
        fail_msg("%s: %d, %d: %s", file->what, checked, loaded, caught.words.data);
    if (!caught_has(&caught, file->said)) fail_msg("%s", file->what);
    if (!*file->said && strlen(caught.words.data) > 0) fail_msg("%s: %s", file->what, caught.words.data);
    if (loaded == OK) check_filters(file, &store);
    text_free(&caught.words);
    store_close(&store);
    graph_free(&graph);
    device_close(device);
}

static void test_files(void **state)
{
    for (int i = 0; i < FILES; i++) try_file(&files[i]);
}

/* ---- Position embeddings of other grids ---- */

/* Squares of a class token and 3x3 patches, for other images, as timm's resample_abs_pos_embed does. */
static const struct {
    int h, w;
    const char *said;
    float expected[31];
} grids[] = {
    {2, 4, "position embeddings of 3x3 patches are resized to 2x4",
     {0, 4.67074f, 7.48859f, 12.68419f, 17.00034f, 37.36809f, 45.22861f, 57.76922f, 67.12804f}},
    {5, 6, "position embeddings of 3x3 patches are resized to 5x6",
     {0, -0.35683f, 0.25176f, 1.53882f, 3.59672f, 6.15508f, 7.36349f, 4.35689f, 5.55164f, 8.07924f, 11.46491f,
      15.26381f, 17.05838f, 15.20588f, 17.46715f, 22.25191f, 28.05343f, 34.10949f, 36.97059f, 36.93547f,
      40.26327f, 47.30518f, 55.52256f, 63.83577f, 67.76339f, 50.12708f, 54.04104f, 62.32349f, 71.86864f,
      81.42239f, 85.93618f}},
    {1, 9, "position embeddings of 3x3 patches are resized to 1x9",
     {0, 20.53089f, 21.47826f, 23.58171f, 26.79969f, 30.47826f, 34.65683f, 38.75412f, 41.47826f, 42.63616f}},
    {3, 3, "", {0, 1, 4, 9, 16, 25, 36, 49, 64, 81}},
};

static enum status squares(void *context, int item, void *data)
{
    const struct safetensors_item *items = context;
    for (int i = 0; i < (int)shape_count(items[item].shape); i++) ((float *)data)[i] = (float)(i * i);
    return OK;
}

static void write_positions(void)
{
    const struct safetensors_item items[] = {
        {"pos", F32, {.rank = 3, .dim = {1, 10, 1, 1}}}, {"class", F32, {.rank = 3, .dim = {1, 1, 1, 1}}},
        {"fc.weight", F32, MATRIX(3, 1)}, {"fc.bias", F32, VECTOR(3)},
    };
    const struct safetensors_content content = {items, 4, NULL, 0, squares, (void *)items};
    assert_int_equal(safetensors_write(path, &content), OK);
}

static void try_grid(int number, bool fine_tuned)
{
    static const char text[] = "[input]\nchannels = 1\n[layers]\nclass = prepend input\n"
                               "pos = position class prefix=1\ntoken = token_pool pos\n"
                               "fc = linear token units=$classes\n";
    struct model_options options = {.size_h = grids[number].h, .size_w = grids[number].w, .classes = 3,
                                    .dropout = -1};
    const struct weights_options how = {.fine_tuned = fine_tuned};
    struct device *device = place_open(1);
    bool same = !*grids[number].said;
    struct graph graph;
    struct store store;
    struct caught caught;
    float values[31];
    assert_int_equal(model_load_text(&options, "grid.ini", text, &graph), OK);
    assert_int_equal(store_open(device, &graph, &(struct store_options){.low = F32}, &store), OK);
    caught_begin(&caught);
    assert_int_equal(weights_load(path, &how, &store), fine_tuned || same ? OK : BAD_CHECKPOINT);
    caught_end(&caught);
    assert_true(caught_has(&caught, fine_tuned || same ? grids[number].said
                                   : grids[number].h == 1   ? "pos (of 3x3 patches, not 1x9)"
                                                            : "pos (1x10x1, not 1x"));
    int param = graph_find_param(&graph, "pos");
    if (fine_tuned) {
        assert_int_equal(store_read(&store, param, STORE_MASTER, values), OK);
        for (int i = 0; i < 1 + grids[number].h * grids[number].w; i++)
            if (!(fabsf(values[i] - grids[number].expected[i]) <= 1e-5f * 81))
                fail_msg("%dx%d: %d is %g", grids[number].h, grids[number].w, i, values[i]);
    }
    text_free(&caught.words);
    store_close(&store);
    graph_free(&graph);
    device_close(device);
}

static void test_position_embeddings_are_resized(void **state)
{
    write_positions();
    for (int i = 0; i < (int)(sizeof grids / sizeof *grids); i++) {
        try_grid(i, true);
        try_grid(i, false);
    }
}

/* A grid with more patches than there are pixels, since the layer above pads. */
static void test_more_patches_than_pixels(void **state)
{
    static const char text[] = "[input]\nchannels = 1\nsize = 2\n[layers]\n"
                               "patches = conv input filters=1 kernel=2 pad=1\nclass = prepend patches\n"
                               "pos = position class prefix=1\ntoken = token_pool pos\n"
                               "fc = linear token units=$classes\n";
    const struct model_options options = {.classes = 3, .dropout = -1};
    const struct weights_options how = {.fine_tuned = true, .lenient = true};
    struct device *device = place_open(1);
    struct graph graph;
    struct store store;
    struct caught caught;
    write_positions();
    assert_int_equal(model_load_text(&options, "grid.ini", text, &graph), OK);
    assert_int_equal(store_open(device, &graph, &(struct store_options){.low = F32}, &store), OK);
    caught_begin(&caught);
    enum status status = weights_load(path, &how, &store);
    caught_end(&caught);
    assert_int_equal(status, OK);
    assert_true(caught_has(&caught, "missing tensors: patches.weight, patches.bias"));
    check_values(&store, "pos", (const float[]){0, 1, 4, 9, 16, 25, 36, 49, 64, 81}, 10);
    text_free(&caught.words);
    store_close(&store);
    graph_free(&graph);
    device_close(device);
}

/* ---- Two heads ---- */

static void load_heads(int classes, bool fine_tuned, enum status expected, const char *said)
{
    static const char text[] = "[input]\nchannels = 1\nsize = 1\n[layers]\nfc = linear input units=$classes\n"
                               "taught = linear input units=$classes\nboth = mean fc taught\n";
    const struct safetensors_item items[] = {
        {"fc.weight", F32, MATRIX(3, 1)}, {"fc.bias", F32, VECTOR(3)},
        {"taught.weight", F32, MATRIX(3, 1)}, {"taught.bias", F32, VECTOR(3)},
    };
    const struct safetensors_content content = {items, 4, NULL, 0, squares, (void *)items};
    const struct model_options options = {.classes = classes, .dropout = -1};
    const struct weights_options how = {.fine_tuned = fine_tuned};
    struct device *device = place_open(1);
    struct graph graph;
    struct store store;
    struct caught caught;
    assert_int_equal(safetensors_write(path, &content), OK);
    assert_int_equal(model_load_text(&options, "heads.ini", text, &graph), OK);
    assert_int_equal(store_open(device, &graph, &(struct store_options){.low = F32}, &store), OK);
    caught_begin(&caught);
    enum status status = weights_load(path, &how, &store);
    caught_end(&caught);
    assert_int_equal(status, expected);
    assert_true(caught_has(&caught, said));
    text_free(&caught.words);
    store_close(&store);
    graph_free(&graph);
    device_close(device);
}

static void test_both_heads_begin_afresh(void **state)
{
    load_heads(3, true, OK, "");
    load_heads(4, true, OK, "has 3 classes, this model 4: the classifier 'fc' is initialised");
    load_heads(4, false, BAD_CHECKPOINT, "taught.weight");
}

/* ---- Tensors that are made of others ---- */

#define TOKENS(n, width) {.rank = 3, .dim = {1, n, width, 1}}

static enum status zeros(void *context, int item, void *data)
{
    const struct safetensors_item *items = context;
    memset(data, 0, (size_t)shape_count(items[item].shape) * dtype_bytes(items[item].dtype));
    return OK;
}

/* Numbers from 1; of "zeros", the second half of columns is 0. */
static enum status count_or_zero(void *context, int item, void *data)
{
    const struct safetensors_item *items = context;
    if (items[item].dtype != F32) return zeros(context, item, data);
    TRY(count_up(context, item, data));
    for (int i = 0; strcmp(items[item].name, "zeros") == 0 && i < 8; i++)
        if (i % 4 >= 2) ((float *)data)[i] = 0;
    return OK;
}

static const struct {
    const char *expression, *shape;      /* NULL: refused */
    float values[9];
} made[] = {
    {"a.{q,k,v}.w", "3x3", {1, 2, 3, 1, 2, 3, 1, 2, 3}},
    {"{b,b}", "4", {1, 2, 1, 2}},
    {"position[1:]", "1x2x2", {3, 4, 5, 6}},
    {"class+position", "1x1x2", {2, 4}},
    {"zeros|", "2x2", {1, 2, 5, 6}},
    {"a.{q,k,other}.w", NULL, {0}},      /* is missing */
    {"a.{q,k", NULL, {0}},
    {"a.{q,k,v,q,k}.w", NULL, {0}},      /* too many */
    {"{class,position}", NULL, {0}},     /* other shapes */
    {"{b,class}", NULL, {0}},
    {"position[3:]", NULL, {0}},         /* nothing would be left */
    {"position[x:]", NULL, {0}},
    {"position[1:", NULL, {0}},
    {"b[1:]", NULL, {0}},                /* no tokens */
    {"position+class", NULL, {0}},       /* too few to be added */
    {"class+b", NULL, {0}},
    {"class+other", NULL, {0}},
    {"numbers|", NULL, {0}},             /* the second half is not 0 */
    {"b|", NULL, {0}},
    {"empty|", NULL, {0}},
    {"odd|", NULL, {0}},
    {"zeros|x", NULL, {0}},
    {"other|", NULL, {0}},
    {"{number,number}", NULL, {0}},      /* no rows to join */
    {"position[0:]", NULL, {0}},
    {"position[-1:]", NULL, {0}},
    {"other[1:]", NULL, {0}},
    {"two[1:]", NULL, {0}},              /* of two images */
    {"two+position", NULL, {0}},
    {"class+two", NULL, {0}},
    {"class+wide", NULL, {0}},
    {"b+class", NULL, {0}},
    {"class+zeros|", NULL, {0}},         /* is made itself */
    {"{b,half}", NULL, {0}},             /* other types */
    {"class+half-class", NULL, {0}},
    {"{class,wide}", NULL, {0}},
};

static void check_made(struct weights_file *file, size_t i)
{
    float values[9];
    char shape[SHAPE_TEXT];
    struct reason reason;
    bool good = weights_file_make(file, made[i].expression);
    assert_true(weights_file_is_expression(made[i].expression));
    if (good != (made[i].shape != NULL)) fail_msg("%s: %d", made[i].expression, good);
    int entry = weights_file_find(file, made[i].expression), all = file->made;
    assert_int_equal(entry >= 0, good);
    if (!good) return;
    assert_string_equal(shape_text(file->entries[entry].shape, shape), made[i].shape);
    assert_true(weights_file_read(file, entry, values, &reason));
    for (int64_t k = 0; k < shape_count(file->entries[entry].shape); k++)
        if (values[k] != made[i].values[k]) fail_msg("%s[%d] is %g", made[i].expression, (int)k, values[k]);
    assert_true(weights_file_make(file, made[i].expression));
    assert_int_equal(file->made, all);
}

static void test_tensors_that_are_made_of_others(void **state)
{
    const struct safetensors_item items[] = {
        {"a.q.w", F32, MATRIX(1, 3)}, {"a.k.w", F32, MATRIX(1, 3)}, {"a.v.w", F32, MATRIX(1, 3)},
        {"b", F32, VECTOR(2)}, {"class", F32, TOKENS(1, 2)}, {"position", F32, TOKENS(3, 2)},
        {"numbers", F32, MATRIX(2, 4)}, {"zeros", F32, MATRIX(2, 4)}, {"empty", F32, MATRIX(1 << 30, 0)},
        {"odd", F32, MATRIX(2, 3)}, {"number", F32, {.dim = {1, 1, 1, 1}}}, {"wide", F32, TOKENS(1, 3)},
        {"two", F32, {.rank = 3, .dim = {2, 3, 2, 1}}}, {"half", F16, VECTOR(2)},
        {"half-class", F16, TOKENS(1, 2)},
    };
    const int count = sizeof items / sizeof *items;
    const struct safetensors_content content = {items, count, NULL, 0, count_or_zero, (void *)items};
    struct weights_file file;
    struct reason reason;
    assert_int_equal(safetensors_write(path, &content), OK);
    assert_true(weights_file_open(path, &file, &reason));
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) check_made(&file, i);
    assert_int_equal(file.count, count);
    assert_true(weights_file_find(&file, "a.v.w") < count);
    assert_false(weights_file_make(&file, "c"));
    weights_file_close(&file);
}

static bool make_and_read(const char *expression)
{
    struct weights_file file;
    struct reason reason;
    float values[16];
    if (!weights_file_open(path, &file, &reason)) return false;
    bool good = weights_file_make(&file, expression) &&
                weights_file_read(&file, weights_file_find(&file, expression), values, &reason);
    weights_file_close(&file);
    return good;
}

/* Each call of the system's fails in turn. The first read only asks whether the file is one of PyTorch. */
static void test_made_tensors_that_are_refused(void **state)
{
    static const char *const calls[] = {"pread", "memory_try"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        for (int k = 0; made[i].shape && k < 2; k++) {
            bool more = true;
            for (int before = 0; more; before++) {
                refuse(calls[k], before);
                bool good = make_and_read(made[i].expression);
                more = refuse_struck();
                bool asks = k == 0 && before == 0;
                if ((more && good != asks) || (!more && (!good || before == 0)))
                    fail_msg("%s: %s %d", made[i].expression, calls[k], before);
            }
        }
    }
}

/* ---- Other networks, into which a file is loaded ---- */

struct trial {
    const char *text;                    /* of the network, for 3 classes */
    struct weights_options how;
    int h, w;                            /* of its images; 0: its own */
    enum status status;
    const char *said;                    /* "": nothing */
};

static void try_network_as(const char *arch, const struct trial *trial)
{
    const struct model_options options = {.arch = arch, .outputs = OUTPUTS_ANY, .size_h = trial->h,
                                          .size_w = trial->w, .classes = 3, .dropout = -1};
    struct device *device = place_open(1);
    struct graph graph;
    struct store store;
    struct caught caught;
    assert_int_equal(model_load_text(&options, arch, trial->text, &graph), OK);
    assert_int_equal(store_open(device, &graph, &(struct store_options){.low = F32}, &store), OK);
    caught_begin(&caught);
    enum status status = weights_load(path, &trial->how, &store);
    caught_end(&caught);
    if (status != trial->status || !caught_has(&caught, trial->said))
        fail_msg("%s: %d, %s", trial->text, status, caught.words.data);
    if (!*trial->said) assert_string_equal(caught.words.data, "");
    text_free(&caught.words);
    store_close(&store);
    graph_free(&graph);
    device_close(device);
}

static void try_network(const struct trial *trial) { try_network_as("net.ini", trial); }

static void write_items(const struct safetensors_item *items, int count, struct safetensors_pair *pair)
{
    const struct safetensors_content content = {items, count, pair, pair != NULL, zeros, (void *)items};
    assert_int_equal(safetensors_write(path, &content), OK);
}

/* Position embeddings that stand for no grid, or for none of this network's; the file may say for which
 * images they are. */
static void test_positions_without_a_grid(void **state)
{
#define TAIL "token = token_pool pos\nfc = linear token units=$classes\n"
#define HEADED "[input]\nchannels = 1\nsize = 3\n[layers]\nclass = prepend input\n"
#define WHOLE HEADED "pos = position class prefix=1\n" TAIL
    static const struct {
        struct shape shape;
        const char *images;
        struct trial trial;
    } rows[] = {
        {TOKENS(10, 1), NULL, {WHOLE, {.resized = true}, 0, 0, OK, ""}},
        {TOKENS(10, 1), NULL, {WHOLE, {.resized = true}, 2, 4, OK, "of 3x3 patches are resized to 2x4"}},
        {TOKENS(10, 1), NULL, {WHOLE, {.fine_tuned = true}, 3, 5, OK, "of 3x3 patches are resized to 3x5"}},
        {TOKENS(16, 1), "3 5 1", {WHOLE, {.fine_tuned = true}, 0, 0, OK, "3x5 patches are resized to 3x3"}},
        {TOKENS(1, 1), NULL, {WHOLE, {.fine_tuned = true}, 2, 4, BAD_CHECKPOINT, "pos (1x1x1, not 1x9x1)"}},
        {TOKENS(8, 1), NULL, {WHOLE, {.fine_tuned = true}, 2, 4, BAD_CHECKPOINT, "pos (1x8x1, not 1x9x1)"}},
        {TOKENS(10, 2), NULL, {WHOLE, {.fine_tuned = true}, 2, 4, BAD_CHECKPOINT, "pos (1x10x2, not 1x9x1)"}},
        {MATRIX(10, 1), NULL, {WHOLE, {.fine_tuned = true}, 2, 4, BAD_CHECKPOINT, "pos (10x1, not 1x9x1)"}},
        {{.rank = 3, .dim = {2, 10, 1, 1}}, NULL,
         {WHOLE, {.resized = true}, 2, 4, BAD_CHECKPOINT, "pos (2x10x1, not 1x9x1)"}},
        {TOKENS(8, 1), NULL,             /* a token that is not counted as one in front of the patches */
         {HEADED "pos = position class\n" TAIL, {.fine_tuned = true}, 0, 0, BAD_CHECKPOINT,
          "pos (1x8x1, not 1x10x1)"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct safetensors_item items[] = {
            {"pos", F32, rows[i].shape}, {"class", F32, TOKENS(1, 1)}, {"fc.weight", F32, MATRIX(3, 1)},
            {"fc.bias", F32, VECTOR(3)},
        };
        struct safetensors_pair pair = {(char *)"input", (char *)rows[i].images};
        write_items(items, 4, rows[i].images ? &pair : NULL);
        try_network(&rows[i].trial);
    }
}

/* ---- Networks for pixels ---- */

/* All ones, or of the tensor `odd` twos. */
struct ones {
    const struct safetensors_item *items;
    int odd;
};

static enum status ones(void *context, int item, void *data)
{
    const struct ones *ones = context;
    int64_t count = shape_count(ones->items[item].shape);
    for (int64_t i = 0; i < count; i++) ((float *)data)[i] = item == ones->odd ? 2 : 1;
    return OK;
}

/* An encoder, layers behind it, and a further output. */
static const char pixels[] =
    "[input]\nchannels = 1\nsize = 1\n[layers]\nbackbone.conv1 = conv input filters=1 kernel=1 bias=no\n"
    "classifier.0 = conv backbone.conv1 filters=2 kernel=1 bias=no\n"
    "classifier.1 = conv classifier.0 filters=$classes kernel=1 bias=no\n"
    "aux_classifier.0 = conv backbone.conv1 filters=2 kernel=1 bias=no\n"
    "aux_classifier.1 = conv aux_classifier.0 filters=$classes kernel=1 bias=no\n"
    "[outputs]\nout = classifier.1\naux = aux_classifier.1\n";

/* Every tensor has a second name. */
static const char twice[] = "[input]\nchannels = 1\nsize = 1\n[layers]\n"
                            "encoder.conv = conv input filters=$classes kernel=1 bias=no\n";

#define FILTER(filters, channels) {.rank = 4, .dim = {filters, channels, 1, 1}}
#define SECOND {"encoder.all_modules.0.weight", F32, FILTER(3, 1)}
#define FIRST {"encoder.conv.weight", F32, FILTER(3, 1)}
#define CONV1 {"conv1.weight", F32, FILTER(1, 1)}
#define FCN "fcn_resnet50", pixels
#define BACKBONE {"backbone.conv1.weight", F32, FILTER(1, 1)}
#define CLASSIFIER {"classifier.0.weight", F32, FILTER(2, 1)}, {"classifier.1.weight", F32, FILTER(3, 2)}
#define AUX {"aux_classifier.0.weight", F32, FILTER(2, 1)}, {"aux_classifier.1.weight", F32, FILTER(3, 2)}

static void test_parts_of_networks_for_pixels(void **state)
{
    static const struct {
        const char *arch, *text;
        struct safetensors_item items[6];
        int odd;
        bool encoder;
        enum status status;
        const char *said;
    } rows[] = {
        {FCN, {BACKBONE, CLASSIFIER, AUX}, -1, true, OK, "5 of 5 tensors"},
        {FCN, {BACKBONE, CLASSIFIER}, -1, false, OK,
         "has no weights for the output 'aux', whose layers are initialised"},
        {FCN, {BACKBONE, CLASSIFIER, {"aux_classifier.1.weight", F32, FILTER(3, 2)}}, -1, false,
         BAD_CHECKPOINT, "missing tensors: aux_classifier.0.weight"},
        {FCN, {BACKBONE}, -1, true, OK,
         "has weights of the encoder alone (resnet50): all other layers are initialised"},
        {FCN, {BACKBONE}, -1, false, BAD_CHECKPOINT, "missing tensors: classifier.0.weight"},
        {FCN, {CONV1, {"fc.weight", F32, MATRIX(9, 1)}}, -1, true,
         OK, "of another head, and left out: fc.weight"},
        {FCN, {{"resnet.embedder.embedder.convolution.weight", F32, FILTER(1, 1)}}, -1, true,
         OK, "1 of 5 tensors"},
        {FCN, {CONV1, {"decoder.weight", F32, MATRIX(9, 1)}}, -1,
         true, BAD_CHECKPOINT, "tensors that are not in this model: decoder.weight"},
        {FCN, {{"conv1.weight", F32, FILTER(2, 1)}}, -1, true, BAD_CHECKPOINT,
         "conv1.weight (2x1x1x1, not 1x1x1x1)"},
        {"net", pixels, {BACKBONE}, -1, true, BAD_CHECKPOINT, "missing tensors: classifier.0.weight"},
        {"nnunet_2d", twice, {FIRST}, -1, true, OK, "1 of 1 tensors"},
        {"nnunet_2d", twice, {{"decoder.encoder.all_modules.0.weight", F32, FILTER(3, 1)}}, -1, true, OK,
         "1 of 1 tensors"},
        {"nnunet_2d", twice, {FIRST, SECOND, {"decoder.encoder.conv.weight", F32, FILTER(3, 1)},
                              {"decoder.encoder.all_modules.0.weight", F32, FILTER(3, 1)}}, -1, true, OK,
         "1 of 1 tensors"},
        {"nnunet_2d", twice, {FIRST, SECOND}, 1, true, BAD_CHECKPOINT,
         "'encoder.conv.weight' and 'encoder.all_modules.0.weight' differ, which are one tensor"},
        {"net", twice, {FIRST, SECOND}, -1, true, BAD_CHECKPOINT,
         "tensors that are not in this model: encoder.all_modules.0.weight"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ones context = {rows[i].items, rows[i].odd};
        struct safetensors_content content = {.items = rows[i].items, .read = ones, .context = &context};
        while (content.count < 6 && rows[i].items[content.count].name) content.count++;
        assert_int_equal(safetensors_write(path, &content), OK);
        const struct weights_options how = {.fine_tuned = true, .encoder = rows[i].encoder};
        try_network_as(rows[i].arch, &(struct trial){rows[i].text, how, 0, 0, rows[i].status, rows[i].said});
    }
}

/* Counters of batches are numbers or vectors of one; in the place of what is no number, neither is one. */
static void test_numbers_and_vectors_of_one(void **state)
{
    static const char text[] = "[input]\nchannels = 1\nsize = 1\n[layers]\nbn = batchnorm input\n"
                               "flat = flatten bn\nfc = linear flat units=$classes\n";
    static const struct {
        struct shape counter, mean;
        enum status status;
        const char *said;
    } rows[] = {
        {{.rank = 0, .dim = {1, 1, 1, 1}}, VECTOR(1), OK, ""},
        {VECTOR(1), {.rank = 0, .dim = {1, 1, 1, 1}}, OK, ""},
        {VECTOR(2), VECTOR(1), BAD_CHECKPOINT, "bn.num_batches_tracked (2, not "},
        {VECTOR(1), MATRIX(1, 1), BAD_CHECKPOINT, "bn.running_mean (1x1, not 1)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct safetensors_item items[] = {
            {"bn.weight", F32, VECTOR(1)}, {"bn.bias", F32, VECTOR(1)}, {"bn.running_var", F32, VECTOR(1)},
            {"bn.running_mean", F32, rows[i].mean}, {"bn.num_batches_tracked", I64, rows[i].counter},
            {"fc.weight", F32, MATRIX(3, 1)}, {"fc.bias", F32, VECTOR(3)},
        };
        write_items(items, 7, NULL);
        try_network(&(struct trial){text, {0}, 0, 0, rows[i].status, rows[i].said});
    }
}

/* Last layers with weights whose rows are not the classes': a file's names of classes in another order move
 * none of them, or only those that have as many. */
static void test_rows_that_are_no_classes(void **state)
{
    static char *const now[] = {"c", "a", "b"};
    static const struct weights_options how = {.fine_tuned = true, .class_names = now, .classes = 3};
    static const struct safetensors_item norm[] = {
        {"bn.weight", F32, VECTOR(3)}, {"bn.bias", F32, VECTOR(3)}, {"bn.running_mean", F32, VECTOR(3)},
        {"bn.running_var", F32, VECTOR(3)}, {"bn.num_batches_tracked", I64, {.dim = {1, 1, 1, 1}}},
        {"fc.weight", F32, MATRIX(3, 3)},
    };
    static const struct safetensors_item conv[] = {{"conv.weight", F32, FILTERS(1, 1, 1, 1)}};
    struct safetensors_pair pair = {(char *)"classes", (char *)"[\"a\",\"b\",\"c\"]"};
    write_items(norm, 6, &pair);
    try_network(&(struct trial){"[input]\nchannels = 3\nsize = 1\n[layers]\nflat = flatten input\n"
                                "fc = linear flat units=$classes bias=no\nbn = batchnorm fc\n", how, 0, 0, OK,
                                "rows of the classifier 'bn' are matched by name"});
    write_items(conv, 1, &pair);
    try_network(&(struct trial){"[input]\nchannels = 1\nsize = 1\n[layers]\n"
                                "conv = conv input filters=1 kernel=1 bias=no\nflat = flatten conv\n", how, 1,
                                3, OK, "rows of the classifier 'conv' are matched by name"});
}

static const char norm_text[] = "[input]\nchannels = 1\nsize = 1\n[layers]\n"
                                "norm = layernorm input eps=1e-6\n"
                                "flat = flatten norm\nfc = linear flat units=$classes\n";
static const struct safetensors_item norm_items[] = {
    {"norm.weight", F32, VECTOR(1)}, {"norm.bias", F32, VECTOR(1)}, {"fc.weight", F32, MATRIX(3, 1)},
    {"fc.bias", F32, VECTOR(3)},
};

/* The file beside the weights names the eps of their layer norms. */
static void test_other_norm_eps(void **state)
{
    static const char *const eps[] = {"1e-12", "1e-6"};
    char *card = text_format("%s/config.json", folder);
    write_items(norm_items, 4, NULL);
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(card, "w");
        assert_non_null(file);
        fprintf(file, "{\"model_type\":\"vit\",\"layer_norm_eps\":%s}", eps[i]);
        assert_int_equal(fclose(file), 0);
        try_network(&(struct trial){norm_text, {0}, 0, 0, OK, i ? "" : "norms of these weights have eps "
                                    "1e-12, this model's 1e-06: model.norm_eps = 1e-12"});
    }
    unlink(card);
    free(card);
}

/* A training checkpoint of PyTorch: the key under which the weights are is named. */
static void test_weights_in_a_wrapper(void **state)
{
    static const struct torch_tensor tensors[] = {{"fc.weight", "FloatStorage", "0", 3, 0, 2, {3, 1}, {1, 1}},
                                                  {"fc.bias", "FloatStorage", "0", 3, 0, 1, {3}, {1}}};
    struct bytes pickle = {0};
    struct archive archive = {0};
    pickle_code(&pickle, "\x80\x02}U\5model}");
    for (int i = 0; i < 2; i++) pickle_tensor(&pickle, &tensors[i]);
    pickle_code(&pickle, "s.");
    archive_add(&archive, "net/data.pkl", pickle.data, pickle.count);
    archive_add(&archive, "net/data/0", (const float[]){1, 2, 3}, 12);
    archive_end(&archive);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(archive.content.data, 1, archive.content.count, file), archive.content.count);
    assert_int_equal(fclose(file), 0);
    try_network(&(struct trial){"[input]\nchannels = 1\nsize = 1\n[layers]\nflat = flatten input\n"
                                "fc = linear flat units=$classes\n", {0}, 0, 0, OK,
                                "the weights under 'model' are used"});
    archive_free(&archive);
    bytes_free(&pickle);
}

/* ---- Folders ---- */

/* Moves the file to another name in its folder, and asks for the folder's weights. */
static void expect_path(const char *name, enum status status, const char *said)
{
    char *there = name ? text_format("%s/%s", folder, name) : NULL, *found;
    struct caught caught;
    if (name) assert_int_equal(rename(path, there), 0);
    caught_begin(&caught);
    enum status got = weights_path(folder, &found);
    caught_end(&caught);
    assert_int_equal(got, status);
    if (!caught_has(&caught, said)) fail_msg("%s", name);
    assert_null(strstr(caught.words.data, "missing"));
    if (got == OK) {
        assert_string_equal(found, there);
        free(found);
    }
    if (name) assert_int_equal(rename(there, path), 0);
    text_free(&caught.words);
    free(there);
}

static void test_folders(void **state)
{
    const struct safetensors_item item = {"w", F32, VECTOR(1)};
    struct safetensors_pair pair = {(char *)"position.best_epoch", (char *)"0"};
    unlink(path);
    expect_path(NULL, BAD_CHECKPOINT, "there is no checkpoint in this folder");
    write_items(&item, 1, NULL);
    expect_path("model.safetensors", OK, "the weights of this folder");
    expect_path("pytorch_model.bin", OK, "the weights of this folder");
    write_items(&item, 1, &pair);
    expect_path("checkpoint-last.safetensors", OK, "the weights of this run");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    expect_path("model.safetensors", OK, "the weights of this folder");
}

/* ---- What the system and the device refuse ---- */

/* Each call fails in turn: then the weights are not loaded, for that reason. */
static void refuse_loading(const char *text, const struct weights_options *how, int h, int w)
{
    static const char *const calls[] = {"pread", "fstat", "memory_try"};
    const struct model_options options = {.size_h = h, .size_w = w, .classes = 3, .dropout = -1};
    struct device *device = place_open(1);
    struct graph graph;
    struct store store;
    assert_int_equal(model_load_text(&options, "vgg.ini", text, &graph), OK);
    const struct store_options stored = {.low = F32, .ema = true};
    assert_int_equal(store_open(device, &graph, &stored, &store), OK);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bool more = true;
        for (int before = 0; more; before++) {
            struct caught caught;
            caught_begin(&caught);
            refuse(calls[i], before);
            enum status status = weights_load(path, how, &store);
            more = refuse_struck();
            caught_end(&caught);
            /* A card that cannot be read is not used. */
            if ((status != OK) != (caught.errors == 1) || (status != OK && !more) || (!more && before == 0))
                fail_msg("%s %d: %d, %s", calls[i], before, status, caught.words.data);
            text_free(&caught.words);
        }
    }
    store_close(&store);
    graph_free(&graph);
    device_close(device);
}

static int uploads;                      /* until one fails; below 0: none does */
static enum status (*upload)(struct device *, int, void *, const void *, size_t);

static enum status counted_upload(struct device *device, int stream, void *memory, const void *host,
                                  size_t bytes)
{
    return uploads-- == 0 ? NO_DEVICE : upload(device, stream, memory, host, bytes);
}

static void lose_device(const char *text)
{
    const struct model_options options = {.classes = 3, .dropout = -1};
    const struct weights_options how = {.fine_tuned = true};
    struct device *device = place_open(1);
    struct device_backend lost = *device->backend, *usual = (void *)device->backend;
    struct graph graph;
    struct store store;
    enum status status = FAILED;
    assert_int_equal(model_load_text(&options, "vgg.ini", text, &graph), OK);
    const struct store_options stored = {.low = F32, .ema = true};
    assert_int_equal(store_open(device, &graph, &stored, &store), OK);
    upload = lost.transfers.upload;
    lost.transfers.upload = counted_upload;
    device->backend = &lost;
    for (int before = 0; status != OK && before < 100; before++) {
        struct caught caught;
        caught_begin(&caught);
        uploads = before;
        status = weights_load(path, &how, &store);
        caught_end(&caught);
        assert_int_equal(status, uploads < 0 ? NO_DEVICE : OK);
        text_free(&caught.words);
    }
    assert_int_equal(status, OK);
    device->backend = usual;
    store_close(&store);
    graph_free(&graph);
    device_close(device);
}

static void test_loading_that_is_refused(void **state)
{
    static const struct file grey = {"grey images", "", "1", {FEATURES, HIDDEN, HEAD}, TUNED, OK, ""};
    static char *const classes[] = {"c", "a", "b"};
    const struct weights_options tuned = {.fine_tuned = true}, exact = {0},
                                 named = {.fine_tuned = true, .class_names = classes, .classes = 3};
    const struct safetensors_item items[] = {
        {"flat.weight", F16, MATRIX(2, 4)}, {"fc.weight", F16, MATRIX(3, 2)}, {"fc.bias", F64, VECTOR(3)}};
    struct safetensors_pair pair = {(char *)"classes", (char *)"[\"a\",\"b\",\"c\"]"};
    write_file(&grey);
    refuse_loading(NETWORK("1"), &tuned, 0, 0);
    lose_device(NETWORK("1"));
    write_positions();
    refuse_loading(WHOLE, &tuned, 2, 4);
    write_items(norm_items, 4, NULL);
    refuse_loading(norm_text, &exact, 0, 0);
    write_items(items, 3, &pair);
    refuse_loading("[input]\nchannels = 1\nsize = 2\n[layers]\nf = flatten input\n"
                   "flat = linear f units=2 bias=no\nfc = linear flat units=$classes\n", &named, 0, 0);
    refuse_loading("[input]\nchannels = 1\nsize = 2\n[layers]\nf = flatten input\n"
                   "flat = linear f units=2 bias=no\nfc = linear flat units=$classes\n", &exact, 0, 0);
}

static int begin_folder(void **state)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/file.safetensors", folder);
    return 0;
}

static int end_folder(void **state)
{
    unlink(path);
    return rmdir(folder);
}

/* ---- What is said to be loaded is what was ---- */

static const char drawn_text[] =
    "[input]\nchannels = 1\nsize = 4\n[layers]\nconv = conv input filters=2 kernel=3 pad=1\n"
    "bn = batchnorm conv\nflat = flatten bn\nhidden = linear flat units=4\n"
    "fc = linear hidden units=$classes\n";

/* A file that has some of a network's tensors, in types that are drawn, with or without a prefix. */
struct drawn {
    struct safetensors_item items[16];
    double values[16];               /* all numbers of the tensor */
    int count;
    bool has[16];                    /* by parameter */
    bool other;                      /* and a tensor of another network */
};

static enum status fill_drawn(void *context, int item, void *data)
{
    const struct drawn *drawn = context;
    for (int64_t i = 0; i < shape_count(drawn->items[item].shape); i++)
        dtype_set(drawn->items[item].dtype, data, i, drawn->values[item]);
    return OK;
}

static void draw_file(const struct graph *graph, struct random *random, struct drawn *drawn)
{
    static const char *const prefixes[] = {"", "", "backbone.", "module.", "a.b.c.", "net.module."};
    static const enum dtype types[] = {F32, F16, BF16, F64};
    const char *prefix = prefixes[random_below(random, 6)];
    uint32_t share = random_below(random, 5);
    *drawn = (struct drawn){.other = random_below(random, 3) == 0};
    for (int p = 0; p < graph->param_count; p++) {
        const struct op_param *spec = &graph->params[p].spec;
        drawn->has[p] = random_below(random, 4) < share;
        if (!drawn->has[p]) continue;
        enum dtype type = types[random_below(random, 4)];
        drawn->values[drawn->count] = 100 + p;
        drawn->items[drawn->count++] = (struct safetensors_item){
            text_format("%s%s", prefix, graph->params[p].name),
            spec->dtype == I64 && random_below(random, 2) ? I64 : type, spec->shape};
    }
    if (drawn->other || drawn->count == 0)
        drawn->items[drawn->count++] = (struct safetensors_item){text_format("%sother.weight", prefix), F32,
                                                                 VECTOR(2)};
}

static bool has_value(const struct store *store, int param, double value)
{
    char bytes[512 * sizeof(float)];
    const struct op_param *spec = &store->graph->params[param].spec;
    bool all = true;
    assert_int_equal(store_read(store, param, STORE_MASTER, bytes), OK);
    for (int64_t i = 0; i < shape_count(spec->shape); i++)
        all = all && dtype_get(spec->dtype, bytes, i) == value;
    return all;
}

static void try_drawn(struct device *device, const struct graph *graph, uint64_t number)
{
    static const struct weights_options how = {.fine_tuned = true, .lenient = true};
    struct random random = random_open(5, PURPOSE_TEST, 3, number);
    struct drawn drawn;
    struct store store;
    struct caught caught;
    draw_file(graph, &random, &drawn);
    const struct safetensors_content content = {drawn.items, drawn.count, NULL, 0, fill_drawn, &drawn};
    assert_int_equal(safetensors_write(path, &content), OK);
    assert_int_equal(store_open(device, graph, &(struct store_options){.low = F32}, &store), OK);
    assert_int_equal(store_init(&store, 1), OK);
    caught_begin(&caught);
    enum status status = weights_load(path, &how, &store);
    caught_end(&caught);
    int loaded = 0, weights = 0, classifier = graph_classifier(graph);
    bool head = true;
    for (int p = 0; p < graph->param_count; p++)
        if (graph->params[p].node == classifier) head = head && drawn.has[p];
    for (int p = 0; p < graph->param_count; p++) {
        bool is = has_value(&store, p, 100 + p), fresh = graph->params[p].node == classifier && !head;
        if (status == OK) assert_int_equal(is, drawn.has[p] && !fresh);
        else assert_false(is);
        loaded += is;
        weights += drawn.has[p] && !fresh && graph->params[p].spec.role != ROLE_STATISTIC;
    }
    char *said = text_format(": %d of %d tensors of the network are loaded", loaded, graph->param_count);
    if ((status == OK) != (weights > 0) ||
        !caught_has(&caught, status == OK ? said : "no weights among them: the file is of another network"))
        fail_msg("%d: %d, %d: %s", (int)number, status, weights, caught.words.data);
    if (status == OK && drawn.other) assert_true(caught_has(&caught, "other.weight"));
    for (int i = 0; i < drawn.count; i++) free((char *)drawn.items[i].name);
    free(said);
    text_free(&caught.words);
    store_close(&store);
}

static void test_what_is_loaded_is_said(void **state)
{
    const struct model_options options = {.classes = 3, .dropout = -1};
    struct device *device = place_open(1);
    struct graph graph;
    assert_int_equal(model_load_text(&options, "drawn.ini", drawn_text, &graph), OK);
    for (long i = rounds(200, 5000); i > 0; i--) try_drawn(device, &graph, (uint64_t)i);
    graph_free(&graph);
    device_close(device);
}

/* Whoever names other numbers than the weights want, or none, is told both. */
static void test_what_images_are_wanted(void **state)
{
    static const struct file file = {.prefix = "", .items = {FEATURES, HIDDEN, HEAD}};
    static const struct {
        const char *arch, *card, *said;
        struct field_reals mean, std;
    } trials[] = {
        {"vgg.ini", "{}", "these weights want augment.mean = 0.485, 0.456, 0.406 and augment.std = 0.229, "
         "0.224, 0.225 (its library's usually do); used are 0, 0, 0 and 1, 1, 1", {0}, {0}},
        {"vgg.ini", "{}", "", {.count = 3, .value = {0.485, 0.456, 0.406}},
         {.count = 3, .value = {0.229, 0.224, 0.225}}},
        {"vgg.ini", "{\"architecture\":\"x\",\"pretrained_cfg\":"
         "{\"mean\":[0.5,0.5,0.5],\"std\":[0.25,0.25,0.25]}}",
         "augment.mean = 0.5, 0.5, 0.5 and augment.std = 0.25, 0.25, 0.25 (",
         {.count = 1, .value = {0.5}}, {0}},
        {"own.ini", "{}", "does not say how its images were normalised; without augment.mean", {0}, {0}},
        {"own.ini", "{}", "", {.count = 1, .value = {0.5}}, {0}},
    };
    char *card = text_format("%s/config.json", folder);
    write_file(&file);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        const struct model_options options = {.classes = 3, .dropout = -1};
        const struct weights_options how = {.fine_tuned = true, .mean = &trials[i].mean,
                                            .std = &trials[i].std};
        struct graph graph;
        struct caught caught;
        FILE *config = fopen(card, "w");
        assert_non_null(config);
        fputs(trials[i].card, config);
        assert_int_equal(fclose(config), 0);
        assert_int_equal(model_load_text(&options, trials[i].arch, NETWORK("3"), &graph), OK);
        caught_begin(&caught);
        assert_int_equal(weights_check(path, &how, &graph), OK);
        caught_end(&caught);
        if (!caught_has(&caught, trials[i].said)) fail_msg("trial %zu", i);
        if (!*trials[i].said) assert_null(strstr(caught.words.data, "augment."));
        text_free(&caught.words);
        graph_free(&graph);
    }
    unlink(card);
    free(card);
}

/* Counters of torch's half(): the largest is no number any more. */
static void test_counters_that_are_no_integers(void **state)
{
    static const enum dtype types[] = {F16, F32, BF16, F64, I64};
    const struct model_options options = {.classes = 3, .dropout = -1};
    struct device *device = place_open(1);
    struct graph graph;
    assert_int_equal(model_load_text(&options, "drawn.ini", drawn_text, &graph), OK);
    int counter = graph_find_param(&graph, "bn.num_batches_tracked");
    for (int t = 0; t < 10; t++) {
        struct drawn drawn = {.count = graph.param_count};
        struct store store;
        double value = t < 5 ? 48 : INFINITY;
        for (int p = 0; p < graph.param_count; p++) {
            drawn.items[p] = (struct safetensors_item){graph.params[p].name, F32, graph.params[p].spec.shape};
            drawn.values[p] = 100 + p;
        }
        drawn.items[counter].dtype = types[t % 5];
        drawn.values[counter] = t == 9 ? 48 : value;
        const struct safetensors_content content = {drawn.items, drawn.count, NULL, 0, fill_drawn, &drawn};
        assert_int_equal(safetensors_write(path, &content), OK);
        assert_int_equal(store_open(device, &graph, &(struct store_options){.low = F32}, &store), OK);
        assert_int_equal(weights_load(path, &(struct weights_options){0}, &store), OK);
        assert_true(has_value(&store, counter, t < 5 || t == 9 ? 48 : 0));
        store_close(&store);
    }
    graph_free(&graph);
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_loaded_is_said),
        cmocka_unit_test(test_what_images_are_wanted),
        cmocka_unit_test(test_counters_that_are_no_integers),
        cmocka_unit_test(test_names_of_libraries),
        cmocka_unit_test(test_networks_that_a_library_lacks),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_position_embeddings_are_resized),
        cmocka_unit_test(test_more_patches_than_pixels),
        cmocka_unit_test(test_both_heads_begin_afresh),
        cmocka_unit_test(test_tensors_that_are_made_of_others),
        cmocka_unit_test(test_made_tensors_that_are_refused),
        cmocka_unit_test(test_positions_without_a_grid),
        cmocka_unit_test(test_numbers_and_vectors_of_one),
        cmocka_unit_test(test_parts_of_networks_for_pixels),
        cmocka_unit_test(test_rows_that_are_no_classes),
        cmocka_unit_test(test_other_norm_eps),
        cmocka_unit_test(test_weights_in_a_wrapper),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_loading_that_is_refused),
    };
    return cmocka_run_group_tests_name("weights", tests, begin_folder, end_folder);
}
