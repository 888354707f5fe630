/* An evaluation without batch norms, whose convolutions have them in their weights: its logits are those of
 * the whole network, but for rounding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "explain/folded_store.h"
#include "graph/batchnorm_fold.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

#define BATCH 7

/* Convolutions with and without a bias, a batch norm without parameters, a residual; not folded are a
 * convolution in groups, one that is read twice, and a batch norm of something else. */
static const char text[] =
    "[input]\nchannels = 3\nsize = 8\n[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu bn1\n"
    "conv2 = conv relu1 filters=8 kernel=3 pad=1\n"
    "bn2 = batchnorm conv2 affine=no eps=0.01\n"
    "add = add bn2 relu1\n"
    "relu2 = relu add\n"
    "groups = conv relu2 filters=8 kernel=3 pad=1 groups=4 bias=no\n"
    "bn3 = batchnorm groups\n"
    "silu = silu bn3\n"
    "twice = conv silu filters=8 kernel=1 bias=no\n"
    "bn4 = batchnorm twice\n"
    "add2 = add bn4 twice\n"
    "bn5 = batchnorm add2\n"
    "last = conv bn5 filters=16 kernel=2 stride=2\n"
    "bn6 = batchnorm last\n"
    "pool = globalavgpool bn6\n"
    "fc = linear pool units=5\n";

static void folds_what_it_can(const struct graph *graph, const int *norms)
{
    static const char *const pairs[][2] = {{"conv1", "bn1"}, {"conv2", "bn2"}, {"last", "bn6"}};
    int count = 0;
    for (int i = 0; i < graph->count; i++) count += norms[i] > 0;
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(norms[graph_find(graph, pairs[i][0])], graph_find(graph, pairs[i][1]));
}

/* Running statistics and affine parameters that are not those of the beginning. */
static void train(struct graph *graph, struct net *net)
{
    net_open(net, graph, &(struct net_options){.batch = BATCH, .training = true});
    for (uint64_t step = 1; step <= 4; step++) {
        net_batch(net, step);
        assert_int_equal(net_run(net, 0.2), OK);
    }
}

/* The root of the mean square difference, relative to the whole network's logits. */
static double difference(struct net *whole, struct net *folded)
{
    double squares = 0, all = 0;
    net_batch(whole, 9);
    net_batch(folded, 9);
    assert_int_equal(net_run(whole, 0), OK);
    assert_int_equal(net_run(folded, 0), OK);
    const float *want = exec_logits(whole->exec), *got = exec_logits(folded->exec);
    for (int i = 0; i < BATCH * NET_CLASSES; i++) {
        squares += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += (double)want[i] * want[i];
    }
    return sqrt(squares / all);
}

/* A folded store in the host's memory. */
struct folded_host {
    struct device *device;
    struct store store;
};

static void fold(const struct graph *graph, const int *norms, const struct graph *folded,
                 const struct store *trained, struct folded_host *host)
{
    const struct store_options options = {.low = F32};
    assert_int_equal(device_open("cpu", 1, &host->device), OK);
    assert_int_equal(store_open(host->device, graph, &options, &host->store), OK);
    assert_int_equal(store_fill(&host->store, trained), OK);
    folded_store_fold(&host->store, graph, norms, folded);
}

static void folded_host_close(struct folded_host *host)
{
    store_close(&host->store);
    device_close(host->device);
}

static void logits_stay(enum dtype storage, double most)
{
    struct graph graph = net_graph(text, false), folded;
    struct net trained, whole, parts;
    struct store store, copy;
    struct folded_host host;
    int *norms = memory_new((size_t)graph.count, sizeof *norms);
    train(&graph, &trained);
    assert_true(folded_store_find(&graph, norms));
    folds_what_it_can(&graph, norms);
    folded = batchnorm_fold(&graph, norms);
    assert_int_equal(folded.count, graph.count - 3);
    assert_string_equal(folded.nodes[folded.output].name, "fc");
    const struct store_options options = {.low = storage};
    fold(&graph, norms, &folded, trained.store, &host);
    assert_int_equal(store_open(trained.device, &folded, &options, &store), OK);
    assert_int_equal(store_fill(&store, &host.store), OK);
    /* A store with the same masters, and with copies of that type. */
    assert_int_equal(store_open(trained.device, &graph, &options, &copy), OK);
    assert_int_equal(store_fill(&copy, trained.store), OK);
    net_open(&whole, &graph, &(struct net_options){.batch = BATCH, .logits = true, .storage = storage,
                                                   .store = &copy, .device = trained.device});
    net_open(&parts, &folded, &(struct net_options){.batch = BATCH, .logits = true, .storage = storage,
                                                    .store = &store, .device = trained.device});
    double error = difference(&whole, &parts);
    assert_true(error < most);
    net_close(&whole);
    net_close(&parts);
    store_close(&store);
    store_close(&copy);
    folded_host_close(&host);
    net_close(&trained);
    free(norms);
    graph_free(&folded);
    graph_free(&graph);
}

static void logits_stay_in_every_precision(void **state)
{
    logits_stay(F32, 1e-5);
    logits_stay(F16, 1e-2);
    logits_stay(BF16, 5e-2);
}

/* A GPU holds weights of convolutions in another order: one whose memory is the host's, since orders are told
 * by a device's kind alone. Without code for GPUs it has the host's order. */
static void every_device_gets_the_same(void **state)
{
    struct graph graph = net_graph(text, false), folded;
    struct net trained;
    struct folded_host host;
    struct store other;
    int *norms = memory_new((size_t)graph.count, sizeof *norms);
    train(&graph, &trained);
    assert_true(folded_store_find(&graph, norms));
    folded = batchnorm_fold(&graph, norms);
    fold(&graph, norms, &folded, trained.store, &host);
    struct device device = *host.device;
    struct device_backend backend = *host.device->backend;
    device.backend = &backend;
    backend.kind = DEVICE_CUDA;
    const struct store_options options = {.low = F32};
    assert_int_equal(store_open(&device, &folded, &options, &other), OK);
    assert_int_equal(store_fill(&other, &host.store), OK);
    for (int p = 0; p < folded.param_count; p++) {
        size_t bytes = (size_t)shape_count(folded.params[p].spec.shape) * sizeof(int64_t);
        float *a = memory_new(bytes, 1), *b = memory_new(bytes, 1);
        assert_int_equal(store_read(&host.store, p, STORE_MASTER, a), OK);
        assert_int_equal(store_read(&other, p, STORE_MASTER, b), OK);
        assert_memory_equal(a, b, bytes);
        free(a);
        free(b);
    }
    store_close(&other);
    folded_host_close(&host);
    net_close(&trained);
    free(norms);
    graph_free(&folded);
    graph_free(&graph);
}

static void nothing_is_found_without_batch_norms(void **state)
{
    struct graph graph = net_graph(net_plain, false);
    int *norms = memory_new((size_t)graph.count, sizeof *norms);
    assert_false(folded_store_find(&graph, norms));
    free(norms);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_stay_in_every_precision),
        cmocka_unit_test(every_device_gets_the_same),
        cmocka_unit_test(nothing_is_found_without_batch_norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
