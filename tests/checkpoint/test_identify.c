/* Networks are recognised by the names and shapes of a weights file's tensors, under the names of every
 * library that has them, with or without a classifier; and the file config.json beside it is read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_identify.h"
#include "checkpoint/weights_names.h"
#include "graph/graph_text.h"
#include "graph/model.h"
#include "graph/norm_eps.h"
#include "tests/support/caught.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
static char folder[] = "/tmp/test_identify.XXXXXX";
static char path[64];

/* ---- Files of networks: a header, and data that are a hole ---- */

struct writing {
    struct text header;
    int64_t bytes;
};

static void add_tensor(struct writing *writing, const char *name, const struct shape *shape)
{
    int64_t bytes = shape_count(*shape) * 4;
    text_add(&writing->header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", writing->bytes ? "," : "", name);
    for (int i = 0; i < shape->rank; i++)
        text_add(&writing->header, "%s%lld", i ? "," : "", (long long)shape->dim[i]);
    text_add(&writing->header, "],\"data_offsets\":[%lld,%lld]}", (long long)writing->bytes,
             (long long)(writing->bytes + bytes));
    writing->bytes += bytes;
}

static void write_header(struct writing *writing)
{
    FILE *file = fopen(path, "w");
    text_add(&writing->header, "}");
    uint64_t length = writing->header.length;
    assert_non_null(file);
    assert_int_equal(fwrite(&length, 8, 1, file), 1);
    assert_int_equal(fwrite(writing->header.data, length, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, (off_t)(8 + length) + writing->bytes), 0);
    text_free(&writing->header);
}

/* Text of a file besides its tensors: pairs of an object. */
static const char *described = "";

/* A file of the network's tensors under a library's names; `without`: a part of names that are left out. */
static void write_network(const struct graph *graph, const struct weights_names *names, const char *without)
{
    struct writing writing = {0};
    text_add(&writing.header, "{");
    if (*described) text_add(&writing.header, "\"__metadata__\":{%s},", described);
    for (int i = 0; i < graph->param_count; i++) {
        struct shape shape = graph->params[i].spec.shape;
        bool classifier = graph->params[i].node == graph_classifier(graph);
        if (strcmp(without, "classifier") == 0 ? classifier
                                               : *without && strstr(graph->params[i].name, without) != NULL)
            continue;
        if (graph->params[i].spec.dtype != F32) continue;
        char *name = weights_names_apply(names, graph->params[i].name, &shape);
        struct weights_part parts[WEIGHTS_SOURCES_MAX];
        int count = weights_names_divide(names, name, shape, parts);
        for (int k = 0; k < count; k++) {
            add_tensor(&writing, parts[k].name, &parts[k].shape);
            free(parts[k].name);
        }
        free(name);
    }
    write_header(&writing);
}

static void open_network(const char *arch, int classes, struct graph *graph)
{
    struct model_options options = {.arch = arch, .folders = folders, .outputs = OUTPUTS_ANY, .dropout = -1,
                                    .classes = classes};
    assert_int_equal(model_load(&options, graph), OK);
}

/* Several networks may have the same tensors: then the others are named. */
static void expect(const char *arch, const char *library, int classes)
{
    struct weights_identity found;
    struct caught caught;
    caught_begin(&caught);
    enum status status = weights_identify(path, &found);
    caught_end(&caught);
    if (status != OK) fail_msg("%s, %s: %s", library, arch, caught.words.data);
    bool named = strcmp(found.arch, arch) == 0 || caught_has(&caught, arch);
    if (!named || found.classes != classes || found.channels != 3)
        fail_msg("%s, %s: found %s, %d classes, %d channels", library, arch, found.arch, found.classes,
                 found.channels);
    text_free(&caught.words);
    weights_identity_free(&found);
}

static void try_network(const char *arch)
{
    struct graph graph;
    open_network(arch, 7, &graph);
    bool coloured = graph.nodes[0].shape.c == 3;
    for (int i = 0; coloured && weights_libraries[i]; i++) {
        struct weights_names names;
        assert_int_equal(weights_names_open(weights_libraries[i], arch, &names), OK);
        if (names.known) {
            write_network(&graph, &names, "");
            expect(arch, weights_libraries[i], 7);
            write_network(&graph, &names, "classifier");
            expect(arch, weights_libraries[i], 0);
        }
        weights_names_close(&names);
    }
    graph_free(&graph);
}

static void test_all_networks(void **state)
{
    int count;
    char **names = model_names(folders, &count);
    int tried = (int)rounds(5, count), step = tried < count ? count / tried : 1;
    for (int i = 0; i < count; i += step) try_network(names[i]);
    text_list_free(names, (size_t)count);
}

/* ---- Other files ---- */

static void refused_as(enum status wanted, const char *words)
{
    struct weights_identity found;
    struct caught caught;
    caught_begin(&caught);
    enum status status = weights_identify(path, &found);
    caught_end(&caught);
    assert_int_equal(status, wanted);
    if (!caught_has(&caught, words)) fail_msg("not said: %s", words);
    text_free(&caught.words);
}

static void refused(const char *words) { refused_as(BAD_CHECKPOINT, words); }

static void test_others(void **state)
{
    const struct weights_names ours = {0};
    const struct shape shape = {.rank = 2, .dim = {3, 4, 1, 1}};
    struct writing writing = {0};
    struct graph graph;
    open_network("resnet18", 7, &graph);
    write_network(&graph, &ours, "layer3.1.conv2");
    refused("the nearest is resnet18, but: it lacks layer3.1.conv2.weight");
    graph.params[0].spec.shape.dim[0] = 60;
    write_network(&graph, &ours, "");
    refused("the nearest is resnet18, but: these tensors have another shape: conv1.weight (60x3x7x7, not "
            "64x3x7x7)");
    graph_free(&graph);
    text_add(&writing.header, "{");
    add_tensor(&writing, "one.weight", &shape);
    write_header(&writing);
    refused("belongs to a network that is none of those that `amptrain models` lists");
}

/* ---- The file beside it ---- */

static void write_beside(const char *name, const char *content)
{
    char *beside = text_format("%s/%s", folder, name);
    FILE *file = fopen(beside, "w");
    assert_non_null(file);
    fputs(content, file);
    assert_int_equal(fclose(file), 0);
    free(beside);
}

static void read_card(const char *config, const char *preprocessor, struct model_card *card)
{
    write_beside("config.json", config);
    write_beside("preprocessor_config.json", preprocessor);
    model_card_read(path, true, card);
}

static void test_cards(void **state)
{
    static const struct {
        const char *config, *preprocessor, *architecture, *first_class;
        int crop, resize, classes;
        double mean;                 /* of the first channel; 0: unknown */
    } cards[] = {
        {"{\"architecture\":\"resnet50d\",\"label_names\":[\"a\",\"b\"],\"pretrained_cfg\":{\"input_size\":"
         "[3,224,224],\"crop_pct\":0.95,\"mean\":[0.5,0.4,0.3],\"std\":[0.2,0.2,0.2]}}", "", "resnet50d", "a",
         224, 235, 2, 0.5},
        {"{\"model_type\":\"resnet\",\"id2label\":{\"0\":\"cat\",\"1\":\"dog\",\"2\":\"fox\"}}",
         "{\"size\":{\"shortest_edge\":224},\"crop_pct\":0.875,\"image_mean\":[0.5,0.5,0.5],"
         "\"image_std\":[0.5,0.5,0.5]}", NULL, "cat", 224, 256, 3, 0.5},
        {"{\"model_type\":\"dinov2\",\"image_size\":518}",
         "{\"size\":{\"shortest_edge\":256},\"crop_size\":{\"height\":224,\"width\":224},"
         "\"do_center_crop\":true,\"image_mean\":[0.485,0.456,0.406],"
         "\"image_std\":[0.229,0.224,0.225]}",
         NULL, NULL, 224, 256, 0, 0.485},
        {"{\"model_type\":\"vit\",\"image_size\":384,\"id2label\":{\"0\":\"LABEL_0\"}}", "{}", NULL, NULL,
         384, 384, 0, 0},
        /* One side, crops that are not made, and those of images that are smaller in one direction. */
        {"{\"model_type\":\"vit\"}", "{\"size\":{\"height\":192}}", NULL, NULL, 192, 192, 0, 0},
        {"{\"model_type\":\"vit\"}", "{\"size\":{\"height\":192,\"width\":20000}}", NULL, NULL, 0, 0, 0, 0},
        {"{\"model_type\":\"vit\"}", "{\"size\":256,\"crop_size\":224,\"do_center_crop\":false}", NULL,
         NULL, 256, 256, 0, 0},
        {"{\"model_type\":\"vit\"}", "{\"size\":192,\"crop_size\":224}", NULL, NULL, 224, 224, 0, 0},
        {"{\"model_type\":\"vit\"}", "{\"size\":{\"height\":256,\"width\":192},\"crop_size\":224}", NULL,
         NULL, 224, 224, 0, 0},
        {"{\"architecture\":\"x\",\"pretrained_cfg\":{\"input_size\":[3,9000,8],\"crop_pct\":0.5}}", "", "x",
         NULL, 9000, 9000, 0, 0},
        /* Nothing that is known, or wrong. */
        {"{\"name\":\"web site\"}", "", NULL, NULL, 0, 0, 0, 0},
        {"{\"architecture\":", "", NULL, NULL, 0, 0, 0, 0},
        {"{\"architecture\":\"x\",\"pretrained_cfg\":{\"input_size\":[3,-1,1e9],\"mean\":[7,7,7],"
         "\"std\":[0,0,0]},\"label_names\":[\"a\",5]}", "", "x", NULL, 0, 0, 0, 0},
        {"[1, 2]", "", NULL, NULL, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        struct model_card card;
        struct caught caught;
        caught_begin(&caught);
        read_card(cards[i].config, cards[i].preprocessor, &card);
        caught_end(&caught);
        text_free(&caught.words);
        bool good = card.crop.h == cards[i].crop && card.resize.h == cards[i].resize &&
                    card.classes == cards[i].classes && card.normalised == (cards[i].mean > 0) &&
                    (!card.normalised || card.mean[0] == cards[i].mean);
        if (!good)
            fail_msg("card %zu: crop %d, resize %d, classes %d, mean %g", i, card.crop.h, card.resize.h,
                     card.classes, card.mean[0]);
        if (cards[i].architecture) assert_string_equal(card.architecture, cards[i].architecture);
        else assert_null(card.architecture);
        if (cards[i].first_class) assert_string_equal(card.class_names[0], cards[i].first_class);
        model_card_free(&card);
    }
}

/* Each field of a card is used, or refused by its name. */
static void test_fields_of_cards(void **state)
{
#define VIT "{\"model_type\":\"vit\"}"
#define HALF "\"image_mean\":[0.5,0.5,0.5],\"image_std\":[0.25,0.25,0.25]"
#define BYTES "\"image_mean\":[127.5,127.5,127.5],\"image_std\":[63.75,63.75,63.75]"
    static const struct {
        const char *config, *preprocessor;
        double mean, std;            /* 0: unknown */
        const char *said;            /* "": nothing */
    } cards[] = {
        {VIT, "{" HALF "}", 0.5, 0.25, ""},
        {VIT, "{\"do_rescale\":true,\"rescale_factor\":0.00392156862745098," HALF "}", 0.5, 0.25, ""},
        {VIT, "{\"do_normalize\":false}", 0, 1, ""},
        {VIT, "{\"do_normalize\":false,\"do_rescale\":false}", 0, 1 / 255.0, ""},
        {VIT, "{\"do_normalize\":false,\"rescale_factor\":0.0078431372549019607}", 0, 0.5, ""},
        {VIT, "{\"do_rescale\":false," BYTES "}", 0.5, 0.25, ""},
        {VIT, "{\"rescale_factor\":1," BYTES "}", 0.5, 0.25, ""},
        {VIT, "{" BYTES "}", 0.5, 0.25, "preprocessor_config.json: image_mean is beyond 1: it and image_std "
         "are taken as those of pixels from 0 to 255"},
        {VIT, "{\"do_rescale\":false," HALF "}", -1, 0, "image_mean is not used"},
        {VIT, "{\"do_rescale\":false}", -1, 0, "do_rescale is not used, because the mean"},
        {VIT, "{\"rescale_factor\":-1," HALF "}", 0.5, 0.25, "rescale_factor is not above 0, and not used"},
        {VIT, "{\"do_normalize\":\"no\"," HALF "}", 0.5, 0.25, "do_normalize is neither true nor false"},
        {VIT, "{\"image_mean\":[0.5,0.5,0.5]}", -1, 0, "image_mean is alone, and not used"},
        {VIT, "{\"image_mean\":[0.5,0.5],\"image_std\":[0.25,0.25,0.25]}", -1, 0,
         "image_mean is not a list of 3 numbers"},
        {VIT, "{\"do_resize\":false," HALF "}", 0.5, 0.25, "do_resize is false, but images are resized"},
        {VIT, "{\"do_flip_channel_order\":true," HALF "}", 0.5, 0.25, "do_flip_channel_order is true"},
        {VIT, "{\"resample\":2," HALF "}", 0.5, 0.25, ""},
        {VIT, "{\"resample\":null," HALF "}", 0.5, 0.25, ""},
        {VIT, "{\"resample\":1," HALF "}", 0.5, 0.25, "preprocessor_config.json: resample is neither"},
        {"{\"architecture\":\"x\",\"pretrained_cfg\":{\"interpolation\":\"lanczos\"}}", "{}", -1, 0,
         "config.json: interpolation is neither bilinear nor bicubic"},
        {VIT, "{\"size\":{\"longest_edge\":224}," HALF "}", 0.5, 0.25, "size is no size that is known"},
        {VIT, "{\"crop_pct\":7," HALF "}", 0.5, 0.25, "crop_pct is not between 0.1 and 1"},
        {"{\"model_type\":\"vit\",\"id2label\":{\"1\":\"cat\"}}", "{" HALF "}", 0.5, 0.25,
         "config.json: id2label is not a name for each class"},
        {"{\"architecture\":\"x\",\"pretrained_cfg\":{\"mean\":[123.675,116.28,103.53],"
         "\"std\":[58.395,57.12,57.375]}}", "{}", 0.485, 0.229, "config.json: mean is beyond 1"},
        {"{\"architecture\":\"x\",\"pretrained_cfg\":{\"crop_mode\":\"border\"}}", "{}", -1, 0,
         "crop_mode is 'border': the centre is used"},
    };
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        struct model_card card;
        struct caught caught;
        caught_begin(&caught);
        read_card(cards[i].config, cards[i].preprocessor, &card);
        caught_end(&caught);
        bool good = card.normalised == (cards[i].mean >= 0) &&
                    card.normalised == (card.normalised_by != NULL) &&
                    (!card.normalised || (fabs(card.mean[0] - cards[i].mean) < 1e-6 &&
                                          fabs(card.std[0] - cards[i].std) < 1e-6));
        if (!good) fail_msg("card %zu: mean %g, std %g", i, card.mean[0], card.std[0]);
        if (*cards[i].said ? !caught_has(&caught, cards[i].said) : caught.words.length > 0)
            fail_msg("card %zu: %s", i, caught.words.data);
        text_free(&caught.words);
        model_card_free(&card);
    }
}

/* Files beside the weights that are too long, or of which JSON would take too much memory. */
static void test_large_cards(void **state)
{
    char *card = text_format("%s/config.json", folder);
    char *many = memory_new(400002, 1);
    memset(many, ',', 400001);
    for (int i = 0; i < 2; i++) {
        struct model_card read;
        struct caught caught;
        write_beside("config.json", i ? many : "{\"architecture\":\"resnet18\"}");
        if (!i) assert_int_equal(truncate(card, (8 << 20) + 1), 0);
        caught_begin(&caught);
        model_card_read(path, true, &read);
        caught_end(&caught);
        assert_null(read.architecture);
        assert_true(caught_has(&caught, "config.json: is not used: it is too long"));
        text_free(&caught.words);
    }
    write_beside("config.json", "{}");
    free(many);
    free(card);
}

/* The card's name decides between networks that have the same tensors; its images and classes are used. */
static void test_card_of_network(void **state)
{
    const struct weights_names ours = {0};
    struct weights_identity found;
    struct graph graph;
    open_network("resnet18", 2, &graph);
    write_network(&graph, &ours, "");
    graph_free(&graph);
    write_beside("config.json", "{\"architecture\":\"resnet18\",\"label_names\":[\"cat\",\"dog\"],"
                                "\"pretrained_cfg\":{\"input_size\":[3,192,192],\"mean\":[0.5,0.5,0.5],"
                                "\"std\":[0.5,0.5,0.5],\"interpolation\":\"bicubic\"}}");
    assert_int_equal(weights_identify(path, &found), OK);
    assert_string_equal(found.arch, "resnet18");
    assert_string_equal(found.card.class_names[1], "dog");
    assert_int_equal(found.card.crop.h, 192);
    assert_true(found.card.mean[2] == 0.5);
    assert_string_equal(found.card.interpolation, "bicubic");
    weights_identity_free(&found);
    write_beside("config.json", "{\"architecture\":\"resnet18\",\"label_names\":[\"a\",\"b\",\"c\"]}");
    struct caught caught;
    caught_begin(&caught);
    assert_int_equal(weights_identify(path, &found), OK);
    caught_end(&caught);
    assert_true(caught_has(&caught, "config.json: label_names names 3 classes, but the weights have 2 "
                                    "outputs: the names are not used"));
    assert_null(found.card.class_names);
    assert_null(found.card.normalised_by);
    text_free(&caught.words);
    weights_identity_free(&found);
    write_beside("config.json", "{}");
    assert_int_equal(weights_identify(path, &found), OK);
    assert_null(found.card.class_names);
    assert_true(found.card.normalised && found.card.mean[0] == 0.485 && found.card.crop.h == 224);
    assert_string_equal(found.card.interpolation, "bilinear");
    weights_identity_free(&found);
}

/* A network that no library has gets images of its own size. */
static void test_size_of_network(void **state)
{
    const struct weights_names ours = {0};
    struct weights_identity found;
    struct graph graph;
    open_network("resnet20", 10, &graph);
    write_network(&graph, &ours, "");
    graph_free(&graph);
    write_beside("config.json", "{}");
    assert_int_equal(weights_identify(path, &found), OK);
    assert_string_equal(found.arch, "resnet20");
    assert_int_equal(found.card.crop.h, 32);
    assert_int_equal(found.card.resize.w, 32);
    weights_identity_free(&found);
}

/* transformers' networks say what their layer norms add; where only some of them have it, it is not used. */
static void test_norm_eps_of_card(void **state)
{
    static const struct {
        const char *config;
        double expected;         /* 0: as in the model file */
    } cards[] = {
        {"{\"model_type\":\"vit\",\"layer_norm_eps\":1e-12}", 1e-12},
        {"{\"model_type\":\"vit\",\"layer_norm_eps\":1e-6}", 0},
        {"{\"model_type\":\"convnext\",\"layer_norm_eps\":1e-12}", 0},
        {"{\"model_type\":\"vit\",\"layer_norm_eps\":-1}", 0},
        {"{\"model_type\":\"vit\",\"layer_norm_eps\":\"1e-12\"}", 0},
    };
    struct weights_names names;
    struct graph graph;
    open_network("vit_tiny_patch16_224", 7, &graph);
    assert_int_equal(weights_names_open("hf", "vit_tiny_patch16_224", &names), OK);
    write_network(&graph, &names, "");
    graph_free(&graph);
    weights_names_close(&names);
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        struct weights_identity found;
        write_beside("config.json", cards[i].config);
        assert_int_equal(weights_identify(path, &found), OK);
        assert_string_equal(found.arch, "vit_tiny_patch16_224");
        if (found.norm_eps != cards[i].expected) fail_msg("card %zu: %g", i, found.norm_eps);
        weights_identity_free(&found);
    }
}

static void expect_norm_eps(double expected)
{
    struct weights_identity found;
    assert_int_equal(weights_identify(path, &found), OK);
    assert_string_equal(found.arch, "mobilenet_v3_small");
    if (found.norm_eps != expected) fail_msg("norm_eps is %g, not %g", found.norm_eps, expected);
    weights_identity_free(&found);
}

/* timm's batch norms have another eps than torchvision's; a run that was given it says so under any names. */
static void test_norm_eps_of_library(void **state)
{
    static const char *const libraries[] = {"torchvision", "timm", "timm"};
    static const double expected[] = {0, 1e-5, 1e-4};
    struct weights_names names;
    struct text text = {0}, escaped = {0};
    struct graph graph;
    write_beside("config.json", "{}");
    open_network("mobilenet_v3_small", 7, &graph);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weights_names_open(libraries[i], "mobilenet_v3_small", &names), OK);
        write_network(&graph, &names, "");
        weights_names_close(&names);
        expect_norm_eps(expected[i]);
        if (i == 1) {
            assert_int_equal(norm_eps_set(1e-4, &graph), OK);
            graph_text(&graph, &text);
            text_json_string(&escaped, text.data);
            described = text_format("\"arch\":\"mobilenet_v3_small\",\"graph\":%s", escaped.data);
            text_free(&escaped);
        }
    }
    free((char *)described);
    described = "";
    text_free(&text);
    graph_free(&graph);
}

/* ---- What files of ours say of themselves ---- */

#define OTHER_GRAPH                                                                                      \
    "\"graph\":\"[input]\\nchannels = 3\\nsize = 8\\n[layers]\\npool = globalavgpool input\\n" \
    "fc = linear pool units=$classes\\n\""

static void test_described_files(void **state)
{
    static const struct {
        const char *described;
        enum status status;
        const char *said;
    } rows[] = {
        {"\"arch\":\"resnet20\"", OK, "is of the network resnet20, 10 classes"},
        {"\"arch\":\"other\"", OK, "is of the network resnet20, 10 classes"},
        {"\"arch\":\"other\"," OTHER_GRAPH, BAD_CHECKPOINT, "belongs to 'other', that is none"},
        {OTHER_GRAPH, BAD_CHECKPOINT, "belongs to a network that is none of those"},
        {"\"graph\":\"[input]\\n\"", BAD_CHECKPOINT, "file.safetensors"},
        {"\"config\":\"[train]\\nepochs = none\\n\"", BAD_CHECKPOINT, "its configuration is invalid"},
    };
    const struct weights_names ours = {0};
    struct graph graph;
    open_network("resnet20", 10, &graph);
    write_beside("config.json", "{}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct weights_identity found;
        struct caught caught;
        described = rows[i].described;
        write_network(&graph, &ours, "");
        caught_begin(&caught);
        enum status status = weights_identify(path, &found);
        caught_end(&caught);
        if (status != rows[i].status || !caught_has(&caught, rows[i].said))
            fail_msg("%s: %d, %s", rows[i].described, status, caught.words.data);
        if (status == OK) weights_identity_free(&found);
        text_free(&caught.words);
    }
    described = "";
    graph_free(&graph);
}

/* How a run of ours preprocessed its images: its own normalisation, or none, and its size, if it is one. */
static void test_own_settings(void **state)
{
    static const struct {
        const char *described;
        double mean, std;
        int crop;
    } rows[] = {
        {"\"config\":\"[augment]\\nmean = 0.5\\nstd = 0.25\\n\",\"input\":\"40 40 3\"", 0.5, 0.25, 40},
        {"\"config\":\"[run]\\nseed = 1\\n\",\"input\":\"40 40 3\"", 0, 1, 40},
        {"\"config\":\"[run]\\nseed = 1\\n\",\"input\":\"large\"", 0, 1, 32},
    };
    const struct weights_names ours = {0};
    struct graph graph;
    open_network("resnet20", 10, &graph);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct weights_identity found;
        described = rows[i].described;
        write_network(&graph, &ours, "");
        assert_int_equal(weights_identify(path, &found), OK);
        assert_true(found.card.mean[2] == rows[i].mean && found.card.std[0] == rows[i].std);
        if (found.card.crop.h != rows[i].crop) fail_msg("%s: %d", rows[i].described, found.card.crop.h);
        weights_identity_free(&found);
    }
    described = "";
    graph_free(&graph);
}

/* A path without a folder; and a classifier that is a single number, or has more classes than a model may. */
static void test_odd_files(void **state)
{
    const struct weights_names ours = {0};
    struct weights_identity found;
    struct graph graph;
    char *before = getcwd(NULL, 0);
    open_network("resnet20", 10, &graph);
    write_network(&graph, &ours, "");
    assert_int_equal(chdir(folder), 0);
    enum status status = weights_identify("file.safetensors", &found);
    assert_int_equal(chdir(before), 0);
    free(before);
    assert_int_equal(status, OK);
    weights_identity_free(&found);
    graph.params[graph_find_param(&graph, "linear.weight")].spec.shape = (struct shape){.dim = {1, 1, 1, 1}};
    write_network(&graph, &ours, "");
    refused("the nearest is resnet20, but: these tensors have another shape: linear.weight (");
    graph_free(&graph);
    open_network("resnet20", 1000001, &graph);
    write_network(&graph, &ours, "");
    refused("the nearest is resnet20, but: these tensors have another shape: linear.weight (1000001x");
    graph_free(&graph);
}

/* ---- Networks and names of the user's own ($AMPTRAIN_DATADIR) ---- */

static void own_begin(void)
{
    char *models = text_format("%s/models", folder);
    assert_int_equal(mkdir(models, 0777), 0);
    assert_int_equal(setenv("AMPTRAIN_DATADIR", folder, 1), 0);
    free(models);
}

static void own_end(void)
{
    static const char *const names[] = {"models/mine.ini", "models/twin.ini", "models/timm.names",
                                        "models/hf.names", "models"};
    unsetenv("AMPTRAIN_DATADIR");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *name = text_format("%s/%s", folder, names[i]);
        remove(name);
        free(name);
    }
}

/* The weights are of a network, and could also be of another one, which is said. */
static void expect_one_of(const char *arch, const char *other)
{
    struct weights_identity found;
    struct caught caught;
    char *words = text_format("could also be of %s", other);
    caught_begin(&caught);
    enum status status = weights_identify(path, &found);
    caught_end(&caught);
    assert_int_equal(status, OK);
    assert_string_equal(found.arch, arch);
    assert_true(caught_has(&caught, words));
    free(words);
    text_free(&caught.words);
    weights_identity_free(&found);
}

/* A network with the tensors of another one: the card, or else the file's name, decides. */
static void test_networks_with_the_same_tensors(void **state)
{
    const struct weights_names ours = {0};
    struct graph graph;
    char *mine = text_format("%s/models/mine.ini", folder), *named = text_format("%s/mine.pth", folder);
    open_network("resnet20", 10, &graph);
    write_network(&graph, &ours, "");
    graph_free(&graph);
    own_begin();
    assert_int_equal(symlink(SOURCEDIR "/conf/models/resnet20.ini", mine), 0);
    write_beside("config.json", "{\"architecture\":\"mine\"}");
    expect_one_of("mine", "resnet20");
    write_beside("config.json", "{\"architecture\":\"resnet20\"}");
    expect_one_of("resnet20", "mine");
    write_beside("config.json", "{}");
    assert_int_equal(rename(path, named), 0);
    char usual[sizeof path];
    memcpy(usual, path, sizeof path);
    snprintf(path, sizeof path, "%s", named);
    expect_one_of("mine", "resnet20");
    memcpy(path, usual, sizeof path);
    assert_int_equal(rename(named, path), 0);
    char *twin = text_format("%s/models/twin.ini", folder);
    assert_int_equal(symlink("mine.ini", twin), 0);
    expect_one_of("mine", "resnet20, twin");
    free(twin);
    own_end();
    free(named);
    free(mine);
}

/* A model file of the user's that cannot be read is an error, whichever network the weights are of. */
static void test_network_that_cannot_be(void **state)
{
    struct weights_identity found;
    struct caught caught;
    own_begin();
    write_beside("models/mine.ini", "[layers]\nx = nothing input\n");
    caught_begin(&caught);
    enum status status = weights_identify(path, &found);
    caught_end(&caught);
    assert_int_not_equal(status, OK);
    assert_true(caught_has(&caught, "models/mine.ini:2: "));
    text_free(&caught.words);
    own_end();
}

/* The name and the shape that a library's rules give to a parameter. */
static void test_names_by_rules(void **state)
{
    static const struct {
        const char *rules, *ours, *theirs;
        int64_t dim0;                    /* of 6x4 */
    } rows[] = {
        {"a.* = {1}x", "a.w", "wx", 6},
        {"a.* = {0}x", "a.w", "{0}x", 6},
        {"a.* = {0+1}x", "a.w", "{0+1}x", 6},
        {"a.* = {1+2}x", "a.5", "7x", 6},
        {"a.* = {1-2}x", "a.5", "3x", 6},
        {"a.* = {1/2}x", "a.5", "2x", 6},
        {"a.* = {1/0}x", "a.5", "5x", 6},
        {"a.* = {1+2", "a.5", "{1+2", 6},
        {"a.* = {1", "a.5", "{1", 6},
        {"a.* = x [4,-1]", "a.w", "x", 4},
        {"a.* = x [0,2,2]", "a.w", "x", 6},
        {"a.* = x [5,5]", "a.w", "x", 6},                /* does not fit, and is left */
        {"a.* = x [4]", "a.w", "x", 6},
        {"a.* = x [-1,-1]", "a.w", "x", 6},
        {"a.* = x [9223372036854775807,24]", "a.w", "x", 6},
        {"*a*a*a*a*a*a*a*a*a = {9}x", ".a.a.a.a.a.a.a.a.a", NULL, 6},
        {"*.*.*.*.*.*.*.*.*.* = x", "a.b.c.d.e.f.g.h.i.j", NULL, 6},     /* too many wildcards */
        {"*.*.*.*.*.*.*.*.* = {9}", "a.b.c.d.e.f.g.h.i", "i", 6},
    };
    own_begin();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct weights_names names;
        struct shape shape = {.rank = 2, .dim = {6, 4, 1, 1}};
        char *text = text_format("[net]\n%s\n", rows[i].rules);
        write_beside("models/timm.names", text);
        free(text);
        assert_int_equal(weights_names_open("timm", "net", &names), OK);
        char *name = weights_names_apply(&names, rows[i].ours, &shape);
        const char *theirs = rows[i].theirs ? rows[i].theirs : rows[i].ours;
        if (strcmp(name, theirs) != 0 || shape.dim[0] != rows[i].dim0)
            fail_msg("%s: %s is %s, %d", rows[i].rules, rows[i].ours, name, (int)shape.dim[0]);
        free(name);
        weights_names_close(&names);
    }
    own_end();
}

/* Rows that an expression cannot divide. */
static void test_rows_that_cannot_be_divided(void **state)
{
    static const char *const expressions[] = {"a.{b,c", "a.{b,c,d,e,f}", "a.{b,c,d,e}", "a[1:]"};
    static const char *const tokens[] = {"a[0:]", "a[-1:]", "a[9223372036854775807:]"};
    const struct weights_names names = {.count = 1};
    const struct shape shape = {.rank = 1, .dim = {6, 1, 1, 1}}, positions = {.rank = 3, .dim = {1, 6, 4, 1}};
    struct weights_part parts[WEIGHTS_SOURCES_MAX];
    for (int i = 0; i < 4; i++)
        assert_int_equal(weights_names_divide(&names, expressions[i], shape, parts), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weights_names_divide(&names, tokens[i], positions, parts), 0);
}

/* Lines that a file of names cannot have are refused, wherever names are asked for. */
static void test_names_that_cannot_be(void **state)
{
    static const char *const lines[] = {
        "a = ", "a = b [", "a = b [1,", "a = b [1x2]", "a = b []", "a = b [1,x]", "a = b [1,2,3,4,5]",
        "a = b [1] c", "a = b 1", "@mean = 0.5 0.5", "@std = a b c", "@crop = large", "@size = 224",
        "@mean = nan 0 0", "@std = 0 1 1", "@resize = 1e11", "@norm_eps = 2",
        "@interpolation = lanczos",
    };
    const struct weights_names ours = {0};
    const struct weights_options how = {0};
    struct weights_identity found;
    struct weights_names names;
    struct caught caught;
    struct graph graph;
    open_network("resnet20", 10, &graph);
    write_network(&graph, &ours, "layer1");
    own_begin();
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *text = text_format("[resnet*]\n%s\n", lines[i]);
        write_beside("models/timm.names", text);
        free(text);
        caught_begin(&caught);
        enum status opened = weights_names_open("timm", "resnet20", &names);
        enum status other = weights_names_open("timm", "vgg16", &names);
        enum status identified = i % 5 == 0 ? weights_identify(path, &found) : USAGE;
        enum status checked = weights_check(path, &how, &graph);
        caught_end(&caught);
        assert_int_equal(checked, USAGE);
        if (opened != USAGE || identified != USAGE) fail_msg("%s: %d, %d", lines[i], opened, identified);
        assert_int_equal(other, OK);
        assert_false(names.known);
        weights_names_close(&names);
        assert_true(caught_has(&caught, "models/timm.names:2: "));
        text_free(&caught.words);
    }
    /* The tensors are ours, but whether a library has the network, and for which images, is asked as well. */
    write_network(&graph, &ours, "");
    write_beside("models/timm.names", "[resnet20]\n@crop = large\n");
    refused_as(USAGE, "models/timm.names:2: ");
    write_beside("models/timm.names", "[resnet20\n");
    refused_as(USAGE, "models/timm.names:1: ");
    graph_free(&graph);
    open_network("lenet5", 10, &graph);
    write_network(&graph, &ours, "");
    write_beside("models/timm.names", "[lenet5]\n@crop = large\n");
    refused_as(USAGE, "models/timm.names:2: ");
    graph_free(&graph);
    own_end();
}

/* Names of a library of which no part can be left out, because there is but one. */
static void test_names_of_one_part(void **state)
{
    const struct weights_names ours = {0};
    struct graph graph;
    own_begin();
    write_beside("models/hf.names", "[resnet20]\nconv1.weight = w\nbn1.weight = a.b+c\nbn1.bias = a+b.c\n"
                                    "layer** = net.layer{1}\n");
    open_network("resnet20", 10, &graph);
    write_network(&graph, &ours, "conv1");
    graph_free(&graph);
    refused("the nearest is resnet20, but: it lacks conv1.weight");
    own_end();
}

static int begin_folder(void **state)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/file.safetensors", folder);
    return 0;
}

static int end_folder(void **state)
{
    static const char *const names[] = {"config.json", "preprocessor_config.json", "file.safetensors"};
    for (size_t i = 0; i < 3; i++) {
        char *name = text_format("%s/%s", folder, names[i]);
        unlink(name);
        free(name);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_networks), cmocka_unit_test(test_others), cmocka_unit_test(test_cards),
        cmocka_unit_test(test_fields_of_cards),
        cmocka_unit_test(test_card_of_network), cmocka_unit_test(test_norm_eps_of_card),
        cmocka_unit_test(test_norm_eps_of_library),
        cmocka_unit_test(test_size_of_network), cmocka_unit_test(test_networks_with_the_same_tensors),
        cmocka_unit_test(test_names_that_cannot_be), cmocka_unit_test(test_names_by_rules),
        cmocka_unit_test(test_large_cards), cmocka_unit_test(test_described_files),
        cmocka_unit_test(test_own_settings), cmocka_unit_test(test_odd_files),
        cmocka_unit_test(test_network_that_cannot_be), cmocka_unit_test(test_rows_that_cannot_be_divided),
        cmocka_unit_test(test_names_of_one_part),
    };
    return cmocka_run_group_tests(tests, begin_folder, end_folder);
}
