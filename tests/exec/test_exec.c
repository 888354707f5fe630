/* Runs of small networks: shared memory against separate, reference against fast code, micro-batches
 * against their average, skipped steps, evaluation, diagnosis. The arena is filled with NaN before
 * every run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "exec/exec_checks.h"
#include "kernels/norm/batchnorm.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

static int64_t param_elements(const struct net *net, int param)
{
    return shape_count(net->graph->params[param].spec.shape);
}

static void assert_same_stores(const struct net *a, const struct net *b, int64_t bytes)
{
    void *left = net_store(a, bytes), *right = net_store(b, bytes);
    assert_memory_equal(left, right, (size_t)bytes);
    free(left);
    free(right);
}

static void finite_gradients(const struct net *net)
{
    for (int p = 0; p < net->graph->param_count; p++) {
        float *x = net_gradient(net, p);
        for (int64_t i = 0; x && i < param_elements(net, p); i++) assert_true(isfinite(x[i]));
        free(x);
    }
}

/* Three steps with dropout, momentum and running statistics in both: losses, gradients and
 * everything that the store holds must be the same bits. */
static void shared_is_separate(const char *text, bool fused, struct net_options options)
{
    struct graph graph = net_graph(text, fused);
    struct net shared, separate;
    options.training = true;
    net_open(&shared, &graph, &options);
    options.separate = true;
    net_open(&separate, &graph, &options);
    assert_true(exec_plan(shared.exec)->arena_bytes < exec_plan(separate.exec)->arena_bytes);
    for (uint64_t step = 1; step <= 3; step++) {
        net_batch(&shared, step);
        net_batch(&separate, step);
        assert_int_equal(net_run(&shared, 0.05), OK);
        assert_int_equal(net_run(&separate, 0.05), OK);
        assert_int_equal(exec_state(shared.exec)->skipped, 0);
        finite_gradients(&shared);
        net_assert_same_gradients(&shared, &separate);
        assert_memory_equal(exec_losses(shared.exec), exec_losses(separate.exec),
                            (size_t)options.batch * sizeof(float));
    }
    assert_same_stores(&shared, &separate, shared.store->layout.bytes);
    net_close(&shared);
    net_close(&separate);
    graph_free(&graph);
}

static const enum dtype storages[] = {F32, F16, BF16};

static void test_shared_is_separate(void **state)
{
    for (int s = 0; s < 3; s++)
        for (int fused = 0; fused < 2; fused++)
            shared_is_separate(net_mixed, fused,
                               (struct net_options){.batch = 6, .storage = storages[s], .scale = 64});
}

static void test_shared_is_separate_micro_batches(void **state)
{
    for (int s = 0; s < 3; s++)
        for (int fused = 0; fused < 2; fused++)
            shared_is_separate(net_mixed, fused,
                               (struct net_options){.batch = 6, .micro_batches = 3, .storage = storages[s]});
}

static void test_shared_is_separate_streams(void **state)
{
    for (int s = 0; s < 3; s++)
        shared_is_separate(net_mixed, true, (struct net_options){.batch = 6, .micro_batches = 2, .streams = 2,
                                                                 .storage = storages[s], .ema = true});
}

static void test_shared_is_separate_reference(void **state)
{
    for (int s = 0; s < 3; s++)
        shared_is_separate(net_mixed, false,
                           (struct net_options){.batch = 2, .storage = storages[s], .reference = true});
}

/* |a - b| / |b| over all elements of a gradient. */
static double gradient_error(const struct net *a, const struct net *b, int param)
{
    float *x = net_gradient(a, param), *y = net_gradient(b, param);
    double difference = 0, size = 1e-30;
    for (int64_t i = 0; x && i < param_elements(a, param); i++) {
        difference += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        size += (double)y[i] * y[i];
    }
    free(x);
    free(y);
    return sqrt(difference / size);
}

static void reference_agrees(bool fused, enum dtype storage, double tolerance)
{
    struct graph graph = net_graph(net_mixed, fused);
    struct net_options options = {.batch = 4, .storage = storage, .training = true};
    struct net fast, plain;
    net_open(&fast, &graph, &options);
    options.reference = true;
    net_open(&plain, &graph, &options);
    assert_int_equal(net_run(&fast, 0), OK);
    assert_int_equal(net_run(&plain, 0), OK);
    for (int i = 0; i < options.batch; i++)
        assert_true(fabs(exec_losses(fast.exec)[i] - exec_losses(plain.exec)[i]) < tolerance);
    for (int p = 0; p < graph.param_count; p++) assert_true(gradient_error(&fast, &plain, p) < tolerance);
    net_close(&fast);
    net_close(&plain);
    graph_free(&graph);
}

static void test_reference_agrees(void **state)
{
    reference_agrees(false, F32, 1e-4);
    reference_agrees(true, F32, 1e-4);
}

static void test_reference_agrees_low(void **state)
{
    reference_agrees(false, F16, 2e-2);
    reference_agrees(true, F16, 2e-2);
    reference_agrees(false, BF16, 1.5e-1);
    reference_agrees(true, BF16, 1.5e-1);
}

/* The gradient over two micro-batches is the mean of the two halves' gradients, in one rounding. */
static void accumulated_is_mean(enum dtype storage)
{
    struct graph graph = net_graph(net_plain, false);
    struct net whole, half;
    struct net_options options = {.batch = 4, .storage = storage, .training = true};
    net_open(&half, &graph, &options);
    options.batch = 8;
    options.micro_batches = 2;
    net_open(&whole, &graph, &options);
    size_t image_bytes = (size_t)half.program.images_bytes;
    float *halves[2][16] = {{NULL}};
    assert_int_equal(net_run(&whole, 0), OK);
    for (int h = 0; h < 2; h++) {
        memcpy(half.images, (char *)whole.images + (size_t)h * image_bytes, image_bytes);
        memcpy(half.labels, whole.labels + 4 * h, 4 * sizeof *half.labels);
        assert_int_equal(net_run(&half, 0), OK);
        assert_memory_equal(exec_losses(half.exec), exec_losses(whole.exec) + 4 * h, 4 * sizeof(float));
        for (int p = 0; p < graph.param_count; p++) halves[h][p] = net_gradient(&half, p);
    }
    for (int p = 0; p < graph.param_count; p++) {
        float *all = net_gradient(&whole, p);
        for (int64_t i = 0; i < param_elements(&whole, p); i++) {
            float mean = 0.5f * halves[0][p][i] + 0.5f * halves[1][p][i];
            assert_true(fabsf(all[i] - mean) <= (storage == F32 ? 1e-6f : 1e-3f) * (1 + fabsf(mean)));
        }
        free(all);
        free(halves[0][p]);
        free(halves[1][p]);
    }
    net_close(&whole);
    net_close(&half);
    graph_free(&graph);
}

/* Targets of one class each are labels, in micro-batches too; halves of two classes are the mean of both. */
static void test_soft_targets(void **state)
{
    struct graph graph = net_graph(net_plain, false);
    struct net hard, soft;
    struct net_options options = {.batch = 8, .micro_batches = 2, .storage = F32, .training = true};
    net_open(&hard, &graph, &options);
    options.soft_targets = true;
    net_open(&soft, &graph, &options);
    assert_int_equal(soft.program.targets_bytes, 8 * NET_TARGETS * (int)sizeof(float));
    float first[8];
    assert_int_equal(net_run(&hard, 0), OK);
    assert_int_equal(net_run(&soft, 0), OK);
    for (int i = 0; i < 8; i++) {
        first[i] = exec_losses(hard.exec)[i];
        assert_true(fabsf(exec_losses(soft.exec)[i] - first[i]) < 1e-5f);
        assert_int_equal(exec_ranks(soft.exec)[i], exec_ranks(hard.exec)[i]);
    }
    for (int p = 0; p < graph.param_count; p++) {
        float *a = net_gradient(&hard, p), *b = net_gradient(&soft, p);
        for (int64_t i = 0; i < param_elements(&hard, p); i++)
            assert_true(fabsf(a[i] - b[i]) <= 1e-5f * (1 + fabsf(a[i])));
        free(a);
        free(b);
    }
    for (int i = 0; i < 8; i++) {
        hard.labels[i] = (hard.labels[i] + 1) % NET_CLASSES;
        float *target = soft.targets + i * NET_TARGETS;
        for (int k = 0; k < NET_CLASSES; k++) target[k] = 0.5f * (target[k] + (k == hard.labels[i]));
    }
    assert_int_equal(net_run(&hard, 0), OK);
    assert_int_equal(net_run(&soft, 0), OK);
    for (int i = 0; i < 8; i++)
        assert_true(fabsf(exec_losses(soft.exec)[i] - 0.5f * (first[i] + exec_losses(hard.exec)[i])) < 1e-5f);
    net_close(&hard);
    net_close(&soft);
    graph_free(&graph);
}

static void test_accumulated_is_mean(void **state)
{
    accumulated_is_mean(F32);
    accumulated_is_mean(BF16);
}

/* The loss scale changes no gradient as long as nothing over- or underflows. */
static void test_scale_cancels(void **state)
{
    struct graph graph = net_graph(net_mixed, true);
    struct net one, scaled;
    net_open(&one, &graph, &(struct net_options){.batch = 4, .training = true});
    net_open(&scaled, &graph, &(struct net_options){.batch = 4, .training = true, .scale = 1024});
    assert_int_equal(net_run(&one, 0.1), OK);
    assert_int_equal(net_run(&scaled, 0.1), OK);
    for (int p = 0; p < graph.param_count; p++) assert_true(gradient_error(&scaled, &one, p) < 1e-6);
    net_close(&one);
    net_close(&scaled);
    graph_free(&graph);
}

static double mean_loss(const struct net *net)
{
    double sum = 0;
    for (int i = 0; i < net->program.batch; i++) sum += exec_losses(net->exec)[i];
    return sum / net->program.batch;
}

static void test_learns(void **state)
{
    for (int s = 0; s < 3; s++) {
        struct graph graph = net_graph(net_mixed, true);
        struct net net;
        net_open(&net, &graph, &(struct net_options){.batch = 8, .storage = storages[s], .training = true,
                                                     .undetermined = true});
        assert_int_equal(net_run(&net, 0.02), OK);
        double first = mean_loss(&net);
        for (int step = 0; step < 60; step++) assert_int_equal(net_run(&net, 0.02), OK);
        assert_true(mean_loss(&net) < 0.7 * first);
        assert_int_equal(exec_state(net.exec)->step, 61);
        assert_int_equal(exec_state(net.exec)->updates, 61);
        net_close(&net);
        graph_free(&graph);
    }
}

/* All but the state: parameters, momentum, statistics, averages. */
static void assert_store_is(const struct net *net, const void *before)
{
    void *now = net_store(net, net->store->layout.state);
    assert_memory_equal(before, now, (size_t)net->store->layout.state);
    free(now);
}

static void set_image(struct net *net, int image, float value)
{
    int64_t element = net->image_elements / net->program.batch * image + 5;
    dtype_set(net->program.storage, net->images, element, value);
}

static void test_skipped_step(void **state)
{
    for (int s = 0; s < 3; s++) {
        struct graph graph = net_graph(net_mixed, true);
        struct net net;
        struct exec_finding finding;
        net_open(&net, &graph, &(struct net_options){.batch = 6, .micro_batches = 2, .storage = storages[s],
                                                     .training = true, .ema = true});
        assert_int_equal(net_run(&net, 0.02), OK);
        void *before = net_store(&net, net.store->layout.state);
        set_image(&net, 4, INFINITY);
        assert_int_equal(net_run(&net, 0.02), OK);
        assert_int_equal(exec_state(net.exec)->skipped, 1);
        assert_int_equal(exec_state(net.exec)->step, 2);
        assert_int_equal(exec_state(net.exec)->updates, 1);
        assert_store_is(&net, before);
        assert_int_equal(exec_diagnose(net.exec, &finding), OK);
        assert_string_equal(finding.what.text, "the images hold Inf");
        assert_int_equal(finding.first, 4);
        assert_int_equal(finding.last, 4);
        assert_store_is(&net, before);
        free(before);
        net_close(&net);
        graph_free(&graph);
    }
}

/* A skipped step in the middle leaves the same parameters as if it had never been. Dropout goes by
 * the step's number, so the network here has none. */
static void test_skipped_step_leaves_no_trace(void **state)
{
    struct graph graph = net_graph(net_plain, true);
    struct net with, without;
    struct net_options options = {.batch = 4, .training = true, .ema = true};
    net_open(&with, &graph, &options);
    net_open(&without, &graph, &options);
    for (uint64_t step = 1; step <= 4; step++) {
        net_batch(&with, step);
        net_batch(&without, step);
        if (step == 3) {
            set_image(&with, 0, NAN);
            assert_int_equal(net_run(&with, 0.1), OK);
            assert_int_equal(exec_state(with.exec)->skipped, 1);
            net_batch(&with, step);
        }
        assert_int_equal(net_run(&with, 0.1), OK);
        assert_int_equal(net_run(&without, 0.1), OK);
    }
    assert_same_stores(&with, &without, with.store->layout.state);
    net_close(&with);
    net_close(&without);
    graph_free(&graph);
}

static void fill_param(struct net *net, const char *name, float value)
{
    int param = graph_find_param(net->graph, name);
    int64_t count = param_elements(net, param);
    float *values = memory_new((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = value;
    assert_int_equal(store_write(net->store, param, STORE_MASTER, values), OK);
    assert_int_equal(store_refresh(net->store), OK);
    free(values);
}

static void finding_is(const char *param, float value, enum dtype storage, const char *expected)
{
    struct graph graph = net_graph(net_mixed, false);
    struct net net;
    struct exec_finding finding;
    net_open(&net, &graph, &(struct net_options){.batch = 4, .storage = storage, .training = true});
    if (param) fill_param(&net, param, value);
    assert_int_equal(net_run(&net, 0), OK);
    assert_int_equal(exec_diagnose(net.exec, &finding), OK);
    assert_string_equal(finding.what.text, expected);
    net_close(&net);
    graph_free(&graph);
}

static void test_diagnose(void **state)
{
    finding_is(NULL, 0, F32, "");
    finding_is("conv2.weight", NAN, F32, "parameter conv2.weight contains NaN");
    finding_is("conv2.weight", 1e6f, F16, "parameter conv2.weight contains Inf as fp16");
    finding_is("bn1.bias", 6e4f, F16, "conv2 forward: output contains Inf");
    finding_is("right.weight", 3e38f, F32, "right forward: output contains Inf");
}

/* A device that reads back so many times more, then no longer. */
static int reads_left;
static enum status (*read_back)(struct device *device, int stream, void *to, const void *from, size_t bytes);

static enum status read_back_or_fail(struct device *device, int stream, void *to, const void *from,
                                     size_t bytes)
{
    return reads_left-- > 0 ? read_back(device, stream, to, from, bytes) : NO_DEVICE;
}

/* How many reads it takes to see that all is finite and no gradient zero; each that fails is passed on. */
static void test_diagnose_failed_reads(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct net net;
    struct exec_finding finding;
    struct reason silent;
    bool zero;
    net_open(&net, &graph, &(struct net_options){.batch = 4, .storage = F16, .training = true});
    assert_int_equal(net_run(&net, 0), OK);
    const struct device_backend *real = net.device->backend;
    struct device_backend failing = *real;
    read_back = real->transfers.download;
    failing.transfers.download = read_back_or_fail;
    net.device->backend = &failing;
    reads_left = 1 << 20;
    assert_int_equal(exec_diagnose(net.exec, &finding), OK);
    assert_string_equal(finding.what.text, "");
    int reads = (1 << 20) - reads_left;
    assert_true(reads > graph.param_count);
    for (int i = 0; i < reads; i++) {
        reads_left = i;
        assert_int_equal(exec_diagnose(net.exec, &finding), NO_DEVICE);
    }
    reads_left = 0;
    assert_int_equal(exec_check_params(net.exec, &finding), NO_DEVICE);
    reads_left = 0;
    assert_int_equal(exec_gradient_is_zero(net.exec, 0, &zero), NO_DEVICE);
    reads_left = 0;
    assert_int_equal(exec_find_silent(net.exec, &silent), NO_DEVICE);
    net.device->backend = real;
    net_close(&net);
    graph_free(&graph);
}

/* A device that captures, on which work is done at once. */
static struct captures {
    int begun, launched, held;
    bool refuses;                    /* the end of a capture */
} captures;

static enum status begin_capture(struct device *device)
{
    captures.begun++;
    return OK;
}

static enum status end_capture(struct device *device, struct captured **captured)
{
    if (captures.refuses) return FAILED;
    captures.held++;
    *captured = (struct captured *)&captures;
    return OK;
}

static enum status launch_captured(struct device *device, struct captured *captured)
{
    assert_ptr_equal(captured, &captures);
    captures.launched++;
    return OK;
}

static void free_captured(struct captured *captured)
{
    captures.held--;
}

static void test_failed_capture(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct net net;
    net_open(&net, &graph, &(struct net_options){.batch = 4, .training = true});
    assert_int_equal(net_run(&net, 0), OK);
    const struct device_backend *real = net.device->backend;
    struct device_backend capturing = *real;
    read_back = real->transfers.download;
    capturing.transfers.download = read_back_or_fail;
    capturing.capture = (struct device_capture){begin_capture, end_capture, launch_captured, free_captured};
    net.device->backend = &capturing;
    captures = (struct captures){.refuses = true};
    reads_left = 0;
    assert_int_equal(net_run(&net, 0), NO_DEVICE);
    captures.refuses = false;
    assert_int_equal(net_run(&net, 0), NO_DEVICE);
    assert_int_equal(captures.held, 0);
    reads_left = 1 << 20;
    captures.refuses = true;
    assert_int_equal(net_run(&net, 0), FAILED);
    captures.refuses = false;
    assert_int_equal(captures.launched, 0);
    for (int run = 0; run < 3; run++) assert_int_equal(net_run(&net, 0), OK);
    assert_int_equal(captures.begun, 3 + captures.held);
    assert_int_equal(captures.launched, 3);
    exec_capture_anew(net.exec);
    assert_int_equal(captures.held, 0);
    net.device->backend = real;
    net_close(&net);
    graph_free(&graph);
}

/* A gradient that overflows is named with the layer whose backward made it. */
static void test_diagnose_backward(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct net net;
    struct exec_finding finding;
    net_open(&net, &graph, &(struct net_options){.batch = 4, .storage = F16, .training = true, .scale = 1e7});
    assert_int_equal(net_run(&net, 0), OK);
    assert_int_equal(exec_state(net.exec)->skipped, 1);
    assert_int_equal(exec_diagnose(net.exec, &finding), OK);
    assert_string_equal(finding.what.text, "loss backward: d fc contains Inf");
    net_close(&net);
    graph_free(&graph);
}

/* Logits are fp32 whatever the precision; rank and loss follow from them. */
static void test_evaluation(void **state)
{
    for (int s = 0; s < 3; s++) {
        struct graph graph = net_graph(net_mixed, true);
        struct net net;
        net_open(&net, &graph, &(struct net_options){.batch = 7, .storage = storages[s], .logits = true});
        assert_int_equal(net_run(&net, 0), OK);
        for (int i = 0; i < 7; i++) {
            const float *logits = exec_logits(net.exec) + i * NET_CLASSES;
            double sum = 0, all = 0, own = logits[net.labels[i]];
            int rank = 0;
            for (int c = 0; c < NET_CLASSES; c++) {
                sum += exp(logits[c]);
                all += logits[c];
                rank += logits[c] > own;
            }
            double loss = log(sum) - 0.9 * own - 0.1 * all / NET_CLASSES;
            assert_true(fabs(loss - exec_losses(net.exec)[i]) < 1e-4);
            assert_int_equal(exec_ranks(net.exec)[i], rank);
        }
        net_close(&net);
        graph_free(&graph);
    }
}

/* Evaluation in training's arena and on its store, in turn with it, changes nothing; results may `stay`. */
static void evaluation_shares(bool stay)
{
    struct graph graph = net_graph(net_mixed, true);
    struct net train, alone, eval;
    struct net_options options = {.batch = 6, .training = true};
    net_open(&train, &graph, &options);
    net_open(&alone, &graph, &options);
    net_open(&eval, &graph, &(struct net_options){.batch = 6, .store = train.store, .logits = true});
    struct exec_options options_again = {.device = train.device, .store = train.store, .results_stay = stay};
    exec_close(eval.exec);
    eval.exec = exec_prepare(&eval.compiled, &options_again);
    assert_int_equal(exec_place(eval.exec, &(struct exec_memory){.lender = train.exec}), OK);
    assert_ptr_equal(exec_arena(eval.exec), exec_arena(train.exec));
    int64_t used = eval.compiled.plan.arena_bytes, all = train.compiled.plan.arena_bytes;
    char *arena = exec_arena(train.exec), *behind = exec_behind(eval.exec, 1);
    const char *results = (const char *)exec_results(eval.exec);
    assert_true(behind >= arena + used && behind < arena + all);
    assert_null(exec_behind(eval.exec, arena + all - behind + 1));
    assert_ptr_equal(exec_behind(eval.exec, arena + all - behind), behind);
    assert_int_equal(results >= arena + used && results < behind, stay);
    for (int step = 0; step < 3; step++) {
        assert_int_equal(net_run(&train, 0.05), OK);
        assert_int_equal(net_run(&alone, 0.05), OK);
        assert_int_equal(net_run(&eval, 0), OK);
    }
    assert_same_stores(&train, &alone, train.store->layout.bytes);
    net_close(&eval);
    net_close(&train);
    net_close(&alone);
    graph_free(&graph);
}

static void test_evaluation_shares(void **state)
{
    evaluation_shares(false);
    evaluation_shares(true);
}

/* The average after a step is half way, by a decay of 1/2, from where it was to where things are. */
static void test_averages(void **state)
{
    struct graph graph = net_graph(net_mixed, true);
    struct net net;
    net_open(&net, &graph, &(struct net_options){.batch = 6, .training = true, .ema = true});
    const char *names[] = {"conv1.weight", "bn1.running_mean"};
    float start[256], master[256], average[256];
    for (int n = 0; n < 2; n++) {
        int param = graph_find_param(&graph, names[n]);
        assert_int_equal(store_read(net.store, param, STORE_MASTER, start), OK);
        assert_int_equal(net_run(&net, 0.1), OK);
        assert_int_equal(store_read(net.store, param, STORE_MASTER, master), OK);
        assert_int_equal(store_read(net.store, param, STORE_AVERAGE, average), OK);
        if (n == 1) break;
        for (int64_t i = 0; i < param_elements(&net, param); i++)
            assert_true(fabsf(average[i] - (start[i] + master[i]) / 2) < 1e-6f);
    }
    int64_t master_count, average_count;
    int counter = graph_find_param(&graph, "bn1.num_batches_tracked");
    assert_int_equal(store_read(net.store, counter, STORE_MASTER, &master_count), OK);
    assert_int_equal(store_read(net.store, counter, STORE_AVERAGE, &average_count), OK);
    assert_int_equal(master_count, 2);
    assert_int_equal(average_count, 2);
    int64_t channels = param_elements(&net, graph_find_param(&graph, "bn1.running_mean"));
    for (int64_t i = 0; i < channels; i++)
        assert_true(fabsf(average[i] - (0.5f * master[i] + 0.25f * start[i])) < 1e-6f);
    net_close(&net);
    graph_free(&graph);
}

/* The length of a batch norm's first step by lars, over that of its weights. */
static double norm_step(bool decay_norm_bias)
{
    struct graph graph = net_graph(net_mixed, true);
    struct net net;
    float before[256], after[256];
    double moved = 0, length = 0;
    net_open(&net, &graph, &(struct net_options){.batch = 6, .training = true, .optimizer = "lars",
                                                 .decay_norm_bias = decay_norm_bias});
    int param = graph_find_param(&graph, "bn1.weight");
    assert_int_equal(store_read(net.store, param, STORE_MASTER, before), OK);
    assert_int_equal(net_run(&net, 10), OK);
    assert_int_equal(store_read(net.store, param, STORE_MASTER, after), OK);
    for (int64_t i = 0; i < param_elements(&net, param); i++) {
        moved += (after[i] - before[i]) * (after[i] - before[i]);
        length += before[i] * before[i];
    }
    net_close(&net);
    graph_free(&graph);
    return sqrt(moved / length);
}

/* Decayed parameters have trust ratios of their own, as by timm's always_adapt, here 10 times 0.001. */
static void test_decay_comes_with_trust_ratios(void **state)
{
    assert_float_equal(norm_step(true), 10 * 0.001, 1e-5);
    assert_true(fabs(norm_step(false) - 10 * 0.001) > 1e-3);
}

/* Many layers' running statistics, more than one kernel follows; each by its own momentum and channels. */
#define MANY_LAYERS 70

static char *many_layers(void)
{
    struct text text = {0};
    text_add(&text, "[input]\nchannels = 3\nsize = 8\n[layers]\n");
    text_add(&text, "c0 = conv input filters=3 kernel=1 stride=4\n");
    for (int i = 0; i < MANY_LAYERS; i++)
        text_add(&text, "b%d = batchnorm c%d momentum=%g\nc%d = conv b%d filters=%d kernel=1\n", i, i,
                 0.01 * (i + 1), i + 1, i, i % 9 == 0 ? 300 : 1 + i % 5);
    text_add(&text, "pool = globalavgpool c%d\nfc = linear pool units=5\n", MANY_LAYERS);
    return text.data;
}

static float *fetch(const struct net *net, int value)
{
    float *host = memory_new((size_t)shape_count(net->program.values[value].shape), sizeof *host);
    assert_int_equal(exec_value(net->exec, value, host), OK);
    return host;
}

static void check_running(const struct net *net, const char *before, const char *after,
                          const struct instruction *update, int step)
{
    const struct batchnorm *s = update->settings;
    for (int k = 0; k < 2; k++) {
        int param = net->program.values[operand(update, OPERAND_PARAM, 2 + k)].index;
        float *batch = fetch(net, operand(update, OPERAND_SAVED, k ? SAVED_VARIANCE : SAVED_MEAN));
        int64_t at = net->store->layout.params[param].master;
        const float *old = (const float *)(before + at), *now = (const float *)(after + at);
        for (int64_t c = 0; c < param_elements(net, param); c++) {
            double expected = (1 - s->momentum) * old[c] + s->momentum * batch[c];
            assert_true(fabs(now[c] - expected) <= 1e-7 * (fabs(expected) + fabs(batch[c])));
        }
        free(batch);
    }
    int counter = net->program.values[operand(update, OPERAND_PARAM, 4)].index;
    assert_int_equal(*(const int64_t *)(after + net->store->layout.params[counter].master), step);
}

static void test_running_statistics(void **state)
{
    char *text = many_layers();
    struct graph graph = net_graph(text, false);
    struct net net;
    net_open(&net, &graph, &(struct net_options){.batch = 2, .training = true, .separate = true});
    int64_t bytes = net.store->layout.bytes;
    for (int step = 1; step <= 3; step++) {
        net_batch(&net, (uint64_t)step);
        char *before = net_store(&net, bytes);
        assert_int_equal(net_run(&net, 1e-6), OK);
        assert_int_equal(exec_state(net.exec)->skipped, 0);
        char *after = net_store(&net, bytes);
        int updates = 0;
        for (int i = 0; i < net.program.count; i++) {
            const struct instruction *at = &net.program.instructions[i];
            if (!at->op || at->phase != PHASE_UPDATE) continue;
            check_running(&net, before, after, at, step);
            updates++;
        }
        assert_int_equal(updates, MANY_LAYERS);
        free(before);
        free(after);
    }
    net_close(&net);
    graph_free(&graph);
    free(text);
}

static void test_frozen(void **state)
{
    struct graph graph = net_graph(net_mixed, true);
    int frozen = graph_find_param(&graph, "conv1.weight"), trained = graph_find_param(&graph, "conv2.weight");
    int norm = graph_find_param(&graph, "bn2.weight");
    int statistic = graph_find_param(&graph, "bn2.running_mean");
    graph.params[frozen].frozen = graph.params[norm].frozen = graph.params[statistic].frozen = true;
    struct net net;
    float before[4][1024], after[1024];
    int params[] = {frozen, norm, statistic, trained};
    net_open(&net, &graph, &(struct net_options){.batch = 6, .training = true});
    for (int i = 0; i < 4; i++)
        assert_int_equal(store_read(net.store, params[i], STORE_MASTER, before[i]), OK);
    for (int step = 0; step < 2; step++) assert_int_equal(net_run(&net, 0.1), OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(store_read(net.store, params[i], STORE_MASTER, after), OK);
        size_t bytes = (size_t)param_elements(&net, params[i]) * sizeof(float);
        assert_int_equal(memcmp(before[i], after, bytes) == 0, params[i] != trained);
    }
    net_close(&net);
    graph_free(&graph);
}

static void test_values_and_times(void **state)
{
    struct graph graph = net_graph(net_plain, false);
    struct net net;
    net_open(&net, &graph, &(struct net_options){.batch = 3, .separate = true, .logits = true});
    exec_measure(net.exec, true);
    assert_int_equal(net_run(&net, 0), OK);
    int64_t sum = 0;
    for (int i = 0; i < net.program.count; i++) sum += exec_times(net.exec)[i];
    assert_true(sum > 0);
    float logits[3 * NET_CLASSES];
    for (int i = 0; i < net.program.count; i++) {
        if (strcmp(net.program.instructions[i].name, "fc forward") != 0) continue;
        assert_int_equal(exec_value(net.exec, operand_y(&net.program.instructions[i]), logits), OK);
        assert_memory_equal(logits, exec_logits(net.exec), sizeof logits);
    }
    net_close(&net);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_is_separate),
        cmocka_unit_test(test_shared_is_separate_micro_batches),
        cmocka_unit_test(test_shared_is_separate_streams),
        cmocka_unit_test(test_shared_is_separate_reference),
        cmocka_unit_test(test_reference_agrees),
        cmocka_unit_test(test_reference_agrees_low),
        cmocka_unit_test(test_soft_targets),
        cmocka_unit_test(test_accumulated_is_mean),
        cmocka_unit_test(test_scale_cancels),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_skipped_step),
        cmocka_unit_test(test_skipped_step_leaves_no_trace),
        cmocka_unit_test(test_diagnose),
        cmocka_unit_test(test_diagnose_backward),
        cmocka_unit_test(test_failed_capture),
        cmocka_unit_test(test_diagnose_failed_reads),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_evaluation_shares),
        cmocka_unit_test(test_averages),
        cmocka_unit_test(test_decay_comes_with_trust_ratios),
        cmocka_unit_test(test_running_statistics),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_values_and_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
