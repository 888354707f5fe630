/* A training step of a network with two outputs for every pixel: its loss and gradients are what plain
 * arithmetic in double precision, and differences of that, make of the definitions of the losses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/loader/mask_targets.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

#define SIDE 8
#define CHANNELS 3
#define CLASSES 4
#define BATCH 6
#define WEIGHT 0.4                      /* of the second output */
#define IGNORED 255

static const char text[] =
    "[input]\nsize = 8\nchannels = 3\nclasses = 4\n[layers]\n"
    "stem = conv input filters=3 kernel=1\n"
    "head = conv stem filters=4 kernel=1\n"
    "pool = avgpool stem kernel=2 stride=2\n"
    "aux = conv pool filters=4 kernel=1\n"
    "[outputs]\nmain = head\naux = aux weight=0.4\n";

static const double weights[CLASSES] = {1, 0.25, 3, 0.5};

enum kind { CE, FOCAL, DICE, DICE_CE, TVERSKY };

struct trial {
    const char *settings;
    enum kind kind;
    bool background;
    int micro_batches;
};

/* Masters of stem, head and aux, one behind the other: weights [out][3], then bias [out]. */
#define STEM (CHANNELS * CHANNELS + CHANNELS)
#define HEAD (CLASSES * CHANNELS + CLASSES)
#define NUMBERS (STEM + 2 * HEAD)

static void product(const double *layer, int outputs, const double *x, double *y)
{
    for (int o = 0; o < outputs; o++) {
        y[o] = layer[outputs * CHANNELS + o];
        for (int c = 0; c < CHANNELS; c++) y[o] += layer[o * CHANNELS + c] * x[c];
    }
}

/* The sums of an output over the pixels of one micro-batch, or of the batch. */
struct sums {
    double loss, weight, p[CLASSES], g[CLASSES], both[CLASSES];
};

static void add_pixel(const struct trial *trial, const double *logits, int label, struct sums *sums)
{
    double p[CLASSES], all = 0;
    if (label == IGNORED) return;
    for (int c = 0; c < CLASSES; c++) all += p[c] = exp(logits[c]);
    for (int c = 0; c < CLASSES; c++) sums->p[c] += p[c] /= all;
    sums->g[label]++;
    sums->both[label] += p[label];
    double rest = trial->kind == FOCAL ? pow(1 - p[label], 1.5) : 1;
    sums->loss -= weights[label] * rest * log(p[label]);
    sums->weight += weights[label];
}

static double regions(const struct trial *trial, const struct sums *s)
{
    double mean = 0;
    int counted = 0;
    for (int c = trial->background ? 0 : 1; c < CLASSES; c++) {
        double tp = s->both[c], fp = s->p[c] - tp, fn = s->g[c] - tp;
        if (s->g[c] == 0) continue;
        counted++;
        mean += trial->kind == TVERSKY ? tp / (tp + 0.3 * fp + 0.7 * fn)
                                       : (2 * tp + 1e-5) / (s->p[c] + s->g[c] + 1e-5);
    }
    return counted ? 1 - mean / counted : 0;
}

/* The logits of a pixel of output `o`, whose pixels are those of the image, or means of 2 x 2. */
static void logits_of(const double *numbers, const double *image, int o, int y, int x, double *logits)
{
    double features[CHANNELS] = {0}, one[CHANNELS];
    int side = o == 0 ? 1 : 2;
    for (int k = 0; k < side * side; k++) {
        int at = (y + k / side) * SIDE + x + k % side;
        product(numbers, CHANNELS, image + at * CHANNELS, one);
        for (int c = 0; c < CHANNELS; c++) features[c] += one[c] / (side * side);
    }
    product(numbers + STEM + o * HEAD, CLASSES, features, logits);
}

static double loss_of(const struct trial *trial, const double *numbers, const double *images,
                      const uint8_t *labels)
{
    double loss = 0;
    for (int o = 0; o < 2; o++) {
        struct sums all = {0};
        double mean = 0;
        for (int m = 0; m < trial->micro_batches; m++) {
            struct sums part = {0};
            int images_each = BATCH / trial->micro_batches;
            for (int i = m * images_each; i < (m + 1) * images_each; i++)
                for (int y = 0; y < SIDE; y += o + 1)
                    for (int x = 0; x < SIDE; x += o + 1) {
                        double logits[CLASSES];
                        int at = i * SIDE * SIDE;
                        logits_of(numbers, images + at * CHANNELS, o, y, x, logits);
                        add_pixel(trial, logits, labels[at + y * SIDE + x], &part);
                    }
            mean += regions(trial, &part) / trial->micro_batches;
            all.loss += part.loss;
            all.weight += part.weight;
        }
        bool pixels = trial->kind == CE || trial->kind == FOCAL || trial->kind == DICE_CE;
        bool areas = trial->kind == DICE || trial->kind == DICE_CE || trial->kind == TVERSKY;
        loss += (o == 0 ? 1 : WEIGHT) * ((pixels ? all.loss / all.weight : 0) + (areas ? mean : 0));
    }
    return loss;
}

/* A third of the pixels of one class, and some ignored; images 0 and 1 have two classes only. */
static void make_labels(struct net *net, const struct mask_targets *targets)
{
    struct random random = random_open(5, PURPOSE_TEST, 0, 0);
    double counts[2 * CLASSES];
    net->masks = memory_new((size_t)net->program.targets_bytes, 1);
    for (int i = 0; i < BATCH * SIDE * SIDE; i++) {
        uint32_t draw = random_below(&random, 9);
        uint8_t label = draw == 0 ? IGNORED : draw < 4 ? 0 : (uint8_t)(draw % CLASSES);
        net->masks[i] = i < 2 * SIDE * SIDE && label != IGNORED ? label % 2 : label;
    }
    assert_int_equal(net->program.targets_bytes, mask_targets_bytes(targets, BATCH));
    mask_targets_count(targets, net->masks, BATCH, counts);
    mask_targets_weigh(targets, counts, BATCH, BATCH, net->masks);
}

/* The place of a parameter among the numbers. */
static int place_of(const struct graph *graph, int param)
{
    static const char *const layers[] = {"stem", "head", "aux"};
    static const int begins[] = {0, STEM, STEM + HEAD}, outputs[] = {CHANNELS, CLASSES, CLASSES};
    const struct parameter *parameter = &graph->params[param];
    for (int i = 0; i < 3; i++)
        if (strcmp(graph->nodes[parameter->node].name, layers[i]) == 0)
            return begins[i] + (strcmp(parameter->spec.name, "bias") == 0 ? outputs[i] * CHANNELS : 0);
    fail_msg("no such parameter: %s", parameter->name);
    return 0;
}

static void check(const struct trial *trial, struct net *net)
{
    double numbers[NUMBERS], *images = memory_new((size_t)net->image_elements, sizeof *images), mean = 0;
    for (int64_t i = 0; i < net->image_elements; i++) images[i] = dtype_get(F32, net->images, i);
    for (int p = 0; p < net->graph->param_count; p++) {
        float values[NUMBERS];
        assert_int_equal(store_read(net->store, p, STORE_MASTER, values), OK);
        for (int64_t i = 0; i < shape_count(net->graph->params[p].spec.shape); i++)
            numbers[place_of(net->graph, p) + i] = (double)values[i];
    }
    assert_int_equal(net_run(net, 0), OK);
    for (int i = 0; i < BATCH; i++) mean += (double)exec_losses(net->exec)[i] / BATCH;
    double expected = loss_of(trial, numbers, images, net->masks);
    if (fabs(mean - expected) > 2e-6 * expected)
        fail_msg("%s: %.9g, not %.9g", trial->settings, mean, expected);
    for (int p = 0; p < net->graph->param_count; p++) {
        float *gradient = net_gradient(net, p);
        for (int64_t i = 0; i < shape_count(net->graph->params[p].spec.shape); i++) {
            double *number = &numbers[place_of(net->graph, p) + i], kept = *number, step = 1e-4;
            *number = kept + step;
            double more = loss_of(trial, numbers, images, net->masks);
            *number = kept - step;
            double slope = (more - loss_of(trial, numbers, images, net->masks)) / (2 * step);
            *number = kept;
            if (fabs(slope - (double)gradient[i]) > 2e-6 + 2e-5 * fabs(slope))
                fail_msg("%s, %d micro-batches: %s[%d] has %.9g, not %.9g", trial->settings,
                         trial->micro_batches, net->graph->params[p].name, (int)i, (double)gradient[i],
                         slope);
        }
        free(gradient);
    }
    free(images);
}

static void losses_are_as_defined(void **state)
{
    static const struct trial trials[] = {
        {"kind=ce", CE, true, 1}, {"kind=ce", CE, true, 3},
        {"kind=focal gamma=1.5", FOCAL, true, 2},
        {"kind=dice", DICE, true, 1}, {"kind=dice background=no", DICE, false, 3},
        {"kind=dice_ce background=no", DICE_CE, false, 2},
        {"kind=tversky false_positives=0.3 false_negatives=0.7", TVERSKY, true, 2},
    };
    const struct model_options model = {.outputs = OUTPUTS_OF_PIXELS, .dropout = -1};
    const struct mask_targets targets = {.classes = CLASSES, .h = SIDE, .w = SIDE, .outputs = 2,
                                         .stride = {1, 2}, .weights = weights};
    struct graph graph;
    assert_int_equal(model_load_text(&model, "net", text, &graph), OK);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        const struct net_options options = {.batch = BATCH, .micro_batches = trials[i].micro_batches,
                                            .storage = F32, .training = true,
                                            .pixel_loss = trials[i].settings};
        struct net net;
        net_open(&net, &graph, &options);
        make_labels(&net, &targets);
        check(&trials[i], &net);
        free(net.masks);
        net_close(&net);
    }
    graph_free(&graph);
}

/* An evaluation has the first output alone, in full size, and neither labels nor losses. */
static void an_evaluation_has_logits(void **state)
{
    const struct model_options model = {.outputs = OUTPUTS_OF_PIXELS, .dropout = -1};
    const struct net_options options = {.batch = 2, .storage = F32, .logits = true, .pixel_loss = "kind=ce"};
    struct graph graph;
    struct net net;
    assert_int_equal(model_load_text(&model, "net", text, &graph), OK);
    net_open(&net, &graph, &options);
    assert_int_equal(net_run(&net, 0), OK);
    assert_int_equal(net.program.targets_bytes, 0);
    assert_null(exec_losses(net.exec));
    assert_non_null(exec_logits(net.exec));
    assert_true(shape_equal(net.program.values[net.program.logits].shape,
                            shape_nhwc(2, SIDE, SIDE, CLASSES)));
    for (int i = 0; i < net.program.count; i++)
        assert_null(strstr(net.program.instructions[i].name, "aux"));
    net_close(&net);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_as_defined),
        cmocka_unit_test(an_evaluation_has_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
