/* Grad-CAM: the layers behind a layer, computed on the host, have the gradient that differences have; which
 * layers are taken, and the colours of pictures. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/augment/heat_map.h"
#include "explain/gradcam.h"
#include "graph/model.h"
#include "tests/support/caught.h"
#include "tests/support/place.h"
#include "tests/support/unit.h"

/* Tails with every kind of layer that networks have there. */
#define HEAD "[input]\nchannels = 3\nsize = 8\n[layers]\n"
static const struct {
    const char *text, *layer;
} networks[] = {
    {HEAD "conv = conv input filters=6 kernel=3 pad=1\n"
          "pool = globalavgpool conv\nfc = linear pool units=$classes\n", "conv"},
    {HEAD "conv = conv input filters=6 kernel=3 pad=1\n"
          "bn = batchnorm conv\nrelu = relu bn\ndrop = dropout relu rate=0.5\nflat = flatten drop\n"
          "fc1 = linear flat units=9\nact = hardswish fc1\nfc2 = linear act units=$classes\n", "conv"},
    {HEAD "conv = conv input filters=6 kernel=3 pad=1\n"
          "one = conv conv filters=6 kernel=3 pad=1\nact1 = silu one\nsum = add act1 conv\n"
          "pool = maxpool sum kernel=2\nmean = globalavgpool pool\nnorm = layernorm mean\n"
          "act2 = gelu norm\nfc = linear act2 units=$classes\n", "conv"},
    {HEAD "conv = conv input filters=6 kernel=3 pad=1\n"
          "pool = globalavgpool conv\nhead = conv pool filters=8 kernel=1 bias=no\nbn = batchnorm head\n"
          "relu = relu bn\nfc = linear relu units=$classes\n", "conv"},
    {HEAD "conv = conv input filters=6 kernel=3 pad=1\n"
          "drop = dropout conv rate=0.5\nlast = conv drop filters=$classes kernel=1\n"
          "pool = globalavgpool last\n", "drop"},
};
#define NETWORKS (int)(sizeof networks / sizeof *networks)

static void open_network(int i, struct graph *graph)
{
    struct model_options options = {.classes = 4, .dropout = -1};
    assert_int_equal(model_load_text(&options, "tail.ini", networks[i].text, graph), OK);
}

/* Statistics of batch norm differ from their initial values. */
static void fill_store(struct store *store)
{
    struct random random = random_open(5, PURPOSE_INIT, 0, 0);
    for (int p = 0; p < store->graph->param_count; p++) {
        const struct op_param *spec = &store->graph->params[p].spec;
        int64_t count = shape_count(spec->shape);
        float *values = memory_new((size_t)count, sizeof *values);
        for (int64_t k = 0; k < count; k++) values[k] = 0.2f + (float)random_uniform(&random);
        if (spec->dtype == F32 && spec->role != ROLE_WEIGHT)
            assert_int_equal(store_write(store, p, STORE_MASTER, values), OK);
        free(values);
    }
}

static void check_gradient(struct tail *tail, float *outputs, int64_t count, int class)
{
    const float *logits, *found;
    float *gradient = memory_new((size_t)count, sizeof *gradient);
    assert_int_equal(tail_forward(tail, outputs, &logits), OK);
    assert_int_equal(tail_backward(tail, class, &found), OK);
    memcpy(gradient, found, (size_t)count * sizeof *gradient);
    for (int64_t k = 0; k < count; k += 7) {
        const float step = 1e-2f, middle = outputs[k];
        outputs[k] = middle + step;
        assert_int_equal(tail_forward(tail, outputs, &logits), OK);
        double above = logits[class];
        outputs[k] = middle - step;
        assert_int_equal(tail_forward(tail, outputs, &logits), OK);
        double slope = (above - logits[class]) / (2 * step);
        outputs[k] = middle;
        if (fabs(slope - gradient[k]) > 1e-3 + 0.02 * fabs(slope))
            fail_msg("number %lld: %g, by differences %g", (long long)k, gradient[k], slope);
    }
    free(gradient);
}

static void test_gradients(void **state)
{
    for (int i = 0; i < NETWORKS; i++) {
        struct device *device = place_open(1);
        struct graph graph;
        struct store store;
        struct tail *tail;
        int node;
        open_network(i, &graph);
        assert_int_equal(store_open(device, &graph, &(struct store_options){.low = F32}, &store), OK);
        assert_int_equal(store_init(&store, 1), OK);
        fill_store(&store);
        assert_int_equal(gradcam_find(&graph, NULL, &node), OK);
        assert_int_equal(gradcam_find(&graph, networks[i].layer, &node), OK);
        assert_int_equal(tail_open(&graph, node, &store, &tail), OK);
        int64_t count = shape_count(graph.nodes[node].shape);
        float *outputs = memory_new((size_t)count, sizeof *outputs);
        /* Far from the corners of ReLU and from equal maxima, by more than the step. */
        for (int64_t k = 0; k < count; k++) outputs[k] = (float)(k * 37 % count) * 0.05f - 4.0f;
        for (int class = 0; class < 4; class++) check_gradient(tail, outputs, count, class);
        free(outputs);
        tail_close(tail);
        store_close(&store);
        graph_free(&graph);
        device_close(device);
    }
}

static void refused(const struct graph *graph, const char *layer, const char *words)
{
    struct caught caught;
    int node;
    caught_begin(&caught);
    enum status status = gradcam_find(graph, layer, &node);
    caught_end(&caught);
    assert_int_equal(status, USAGE);
    if (!caught_has(&caught, words)) fail_msg("not said: %s", words);
    text_free(&caught.words);
}

static void test_layers(void **state)
{
    static const char *const expected[NETWORKS] = {"conv", "drop", "pool", "conv", "drop"};
    struct graph graph;
    int node;
    for (int i = 0; i < NETWORKS; i++) {
        open_network(i, &graph);
        assert_int_equal(gradcam_find(&graph, NULL, &node), OK);
        assert_string_equal(graph.nodes[node].name, expected[i]);
        if (i == 2) refused(&graph, "one", "is bypassed by another path");
        if (i == 2) refused(&graph, "mean", "has one pixel");
        if (i == 2) refused(&graph, "two", "has no layer 'two'");
        graph_free(&graph);
    }
}

/* ---- Attention rollout ---- */

#define TRANSFORMER \
    "[input]\nchannels = 3\nsize = 4\n[layers]\npatch = conv input filters=2 kernel=2 stride=2\n" \
    "cls = prepend patch\nqkv1 = linear cls units=6 per_pixel=yes\natt1 = attention qkv1 heads=2\n" \
    "qkv2 = linear att1 units=6 per_pixel=yes\natt2 = attention qkv2 heads=1\nadd = add att2 att1\n" \
    "pool = token_pool add\nfc = linear pool units=$classes\n"

/* The attention of token i to token j, the mean of the heads. */
static double attention_of(const float *inputs, int heads, int i, int j)
{
    int size = 2 / heads;
    double mean = 0;
    for (int head = 0; head < heads; head++) {
        double own = 0, sum = 0;
        for (int t = 0; t < 5; t++) {
            double score = 0;
            for (int c = 0; c < size; c++)
                score += inputs[i * 14 + head * size + c] * inputs[t * 14 + 2 + head * size + c];
            sum += exp(score / sqrt(size));
            if (t == j) own = exp(score / sqrt(size));
        }
        mean += own / sum / heads;
    }
    return mean;
}

/* Five tokens of 14 channels: queries, keys and values of both layers, and two that do not matter. */
static void test_rollout(void **state)
{
    struct model_options options = {.classes = 4, .dropout = -1};
    struct rollout rollout;
    struct graph graph;
    float inputs[5 * 14], map[4];
    double wanted[4], least = 1, most = 0;
    assert_int_equal(model_load_text(&options, "tail.ini", TRANSFORMER, &graph), OK);
    assert_true(rollout_open(&graph, &rollout));
    assert_int_equal(rollout.count, 2);
    assert_int_equal(rollout.tokens, 5);
    assert_int_equal(rollout.prefix, 1);
    assert_int_equal(rollout.h * 10 + rollout.w, 22);
    for (int i = 0; i < 70; i++) inputs[i] = (float)(i * 31 % 17) * 0.2f - 1.5f;
    for (int p = 0; p < 4; p++) {
        double sum = 0;
        for (int t = 0; t < 5; t++)
            sum += (attention_of(inputs + 6, 1, 0, t) + (t == 0)) / 2 *
                   (attention_of(inputs, 2, t, p + 1) + (t == p + 1)) / 2;
        wanted[p] = sum;
        least = fmin(least, sum);
        most = fmax(most, sum);
    }
    rollout_map(&rollout, &graph, inputs, 14, map);
    for (int p = 0; p < 4; p++)
        assert_true(fabs(map[p] - (wanted[p] - least) / (most - least)) < 1e-5);
    rollout_close(&rollout);
    graph_free(&graph);
    open_network(0, &graph);
    assert_false(rollout_open(&graph, &rollout));
    graph_free(&graph);
}

#define DISTILLED \
    "[input]\nchannels = 3\nsize = 4\n[layers]\npatch = conv input filters=2 kernel=2 stride=2\n" \
    "cls = prepend patch count=2\nqkv = linear cls units=6 per_pixel=yes\natt = attention qkv heads=1\n" \
    "two = token_slice att count=2\na = token_slice two\nb = token_slice two first=1\n" \
    "head = linear a units=$classes\nhead_dist = linear b units=$classes\nlogits = mean head head_dist\n"

/* A class and a distillation token: both begin the map, which is not of the two. */
static void test_rollout_of_two_tokens(void **state)
{
    struct model_options options = {.classes = 4, .dropout = -1};
    struct rollout rollout;
    struct graph graph;
    /* The queries are 0: each token is half itself, and half the mean of all six. */
    float inputs[6 * 6] = {0}, map[4];
    assert_int_equal(model_load_text(&options, "tail.ini", DISTILLED, &graph), OK);
    assert_string_equal(graph.nodes[gradcam_layer(&graph)].name, "att");
    assert_true(rollout_open(&graph, &rollout));
    assert_int_equal(rollout.prefix, 2);
    assert_int_equal(rollout.first * 10 + rollout.read, 2);
    inputs[1 * 6] = 8;                   /* but that of the distillation token finds the key of patch 2 */
    inputs[4 * 6 + 2] = 8;
    rollout_map(&rollout, &graph, inputs, 6, map);
    for (int p = 0; p < 4; p++) assert_true(map[p] == (p == 2));
    rollout_close(&rollout);
    graph_free(&graph);
}

/* The corners of a picture have the colours of the map's ends, half of them. */
static void test_picture(void **state)
{
    const struct augment augment = {.channels = 1, .val_crop = 4, .mean = {0}, .std = {1}};
    const float values[] = {0, 0, 1, 1};
    const struct heat_map map = {values, 1, 4};
    uint8_t grey[16];
    memset(grey, 200, sizeof grey);
    const struct image image = {.h = 4, .w = 4, .c = 1, .full_h = 4, .full_w = 4, .pixels = grey};
    struct image picture = {0};
    struct reason reason;
    assert_true(heat_map_draw(&augment, &image, &map, 4, 4, &picture, &reason));
    assert_int_equal(picture.c, 3);
    const uint8_t cold[] = {100, 100, 172}, hot[] = {172, 100, 100};
    for (int k = 0; k < 3; k++) {
        assert_in_range(picture.pixels[k], cold[k] - 1, cold[k] + 1);
        assert_in_range(picture.pixels[3 * 15 + k], hot[k] - 1, hot[k] + 1);
    }
    image_free(&picture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_rollout), cmocka_unit_test(test_rollout_of_two_tokens),
        cmocka_unit_test(test_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
