/* The store: its layout, initial values, parts, copies and averages. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/memory.h"
#include "exec/store.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

static int64_t part_bytes(const struct graph *graph, int param)
{
    const struct op_param *spec = &graph->params[param].spec;
    return shape_count(spec->shape) * (int64_t)dtype_bytes(spec->dtype);
}

static void mark(char *block, int64_t limit, int64_t offset, int64_t bytes)
{
    if (offset == STORE_NONE) return;
    assert_int_equal(offset % 256, 0);
    assert_true(offset >= 0 && offset + bytes <= limit);
    for (int64_t i = 0; i < bytes; i++) {
        assert_int_equal(block[offset + i], 0);
        block[offset + i] = 1;
    }
}

/* No two parts share a byte, and all are aligned. */
static void test_layout(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct store_options options = {.low = BF16, .optimizer = optimizer_find("adam"), .ema = true};
    struct store_layout layout;
    graph.params[graph_find_param(&graph, "conv1.weight")].frozen = true;
    store_lay_out(&graph, &options, &layout);
    char *block = memory_new((size_t)layout.bytes, 1);
    for (int p = 0; p < graph.param_count; p++) {
        int64_t bytes = part_bytes(&graph, p);
        mark(block, layout.bytes, layout.params[p].master, bytes);
        mark(block, layout.bytes, layout.params[p].average, bytes);
        mark(block, layout.bytes, layout.params[p].low, bytes / 2);
        for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++)
            mark(block, layout.bytes, layout.params[p].slots[s], bytes);
    }
    mark(block, layout.bytes, layout.state, (int64_t)sizeof(struct optimizer_state));
    free(block);
    store_layout_free(&layout);
    graph_free(&graph);
}

static void test_layout_parts(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    int conv = graph_find_param(&graph, "conv2.weight"), norm = graph_find_param(&graph, "bn1.weight");
    int mean = graph_find_param(&graph, "bn1.running_mean");
    int frozen = graph_find_param(&graph, "conv1.weight");
    graph.params[frozen].frozen = true;
    struct store_layout layout;
    store_lay_out(&graph, &(struct store_options){F16, optimizer_find("adam"), true, false}, &layout);
    assert_true(layout.params[conv].low != STORE_NONE && layout.params[frozen].low != STORE_NONE);
    assert_true(layout.params[norm].low == STORE_NONE && layout.params[mean].low == STORE_NONE);
    assert_true(layout.params[conv].slots[1] != STORE_NONE && layout.params[norm].slots[1] != STORE_NONE);
    assert_true(layout.params[mean].slots[0] == STORE_NONE && layout.params[frozen].slots[0] == STORE_NONE);
    assert_true(layout.params[mean].average != STORE_NONE && layout.params[frozen].average == STORE_NONE);
    store_layout_free(&layout);
    store_lay_out(&graph, &(struct store_options){.low = F32}, &layout);
    assert_true(layout.params[conv].low == STORE_NONE && layout.params[conv].slots[0] == STORE_NONE);
    assert_true(layout.params[conv].average == STORE_NONE);
    store_layout_free(&layout);
    graph_free(&graph);
}

/* A layer whose weight is large enough for statistics, with the initial values under test. */
static const char wide[] = "[input]\nchannels = 64\nsize = 4\n[layers]\n"
                           "conv = conv input filters=128 kernel=3 pad=1\n"
                           "avg = globalavgpool conv\nfc = linear avg units=5\n";

struct moments {
    double mean, deviation, least, most;
};

static struct moments initial_moments(enum init init, double arg)
{
    struct graph graph = net_graph(wide, false);
    struct device *device;
    struct store store;
    struct op_param *spec = &graph.params[graph_find_param(&graph, "conv.weight")].spec;
    spec->init = init;
    spec->init_arg = arg;
    device = place_open(0);
    assert_int_equal(store_open(device, &graph, &(struct store_options){.low = F32}, &store), OK);
    assert_int_equal(store_init(&store, 1), OK);
    int64_t count = shape_count(spec->shape);
    float *values = memory_new((size_t)count, sizeof *values);
    assert_int_equal(store_read(&store, graph_find_param(&graph, "conv.weight"), STORE_MASTER, values), OK);
    struct moments m = {0, 0, values[0], values[0]};
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += values[i];
        squares += (double)values[i] * values[i];
        m.least = fmin(m.least, values[i]);
        m.most = fmax(m.most, values[i]);
    }
    m.mean = sum / (double)count;
    m.deviation = sqrt(squares / (double)count - m.mean * m.mean);
    free(values);
    store_close(&store);
    device_close(device);
    graph_free(&graph);
    return m;
}

/* 73,728 values: the mean's error is below 5 / sqrt(count) deviations, the deviation's about as small. */
static void check_moments(struct moments m, double deviation)
{
    assert_true(fabs(m.mean) < 0.02 * deviation);
    assert_true(fabs(m.deviation - deviation) < 0.02 * deviation);
}

static void test_init_normal(void **state)
{
    check_moments(initial_moments(INIT_KAIMING_FAN_OUT, 0), sqrt(2.0 / (128 * 9)));
    check_moments(initial_moments(INIT_KAIMING_FAN_IN, 0), sqrt(2.0 / (64 * 9)));
    check_moments(initial_moments(INIT_NORMAL, 0.01), 0.01);
}

static void test_init_uniform(void **state)
{
    double in = 64 * 9, out = 128 * 9;
    struct moments m = initial_moments(INIT_UNIFORM_FAN_IN, 0);
    check_moments(m, 1 / sqrt(in) / sqrt(3));
    assert_true(m.most <= 1 / sqrt(in) && m.least >= -1 / sqrt(in) && m.most > 0.999 / sqrt(in));
    m = initial_moments(INIT_XAVIER_UNIFORM, 0);
    check_moments(m, sqrt(6 / (in + out)) / sqrt(3));
    check_moments(initial_moments(INIT_KAIMING_UNIFORM, 0), sqrt(6 / in) / sqrt(3));
    check_moments(initial_moments(INIT_UNIFORM_FAN_OUT, 0), 1 / sqrt(out) / sqrt(3));
}

/* A normal that is cut at +-2, however wide it is: its variance is deviation^2 (1 - 2 a phi(a) / (2 Phi(a) -
 * 1)) with a = 2 / deviation; far out nothing but a uniform is left. */
static void test_init_truncated(void **state)
{
    static const double deviations[] = {0.1, 1, 2, 2.5, 10, 100, 1e6};
    for (size_t i = 0; i < sizeof deviations / sizeof *deviations; i++) {
        double a = 2 / deviations[i], phi = exp(-a * a / 2) / sqrt(2 * 3.14159265358979);
        double share = 1 - 2 * a * phi / erf(a / sqrt(2));
        struct moments m = initial_moments(INIT_TRUNCATED_NORMAL, deviations[i]);
        check_moments(m, deviations[i] < 1000 ? deviations[i] * sqrt(share) : 2 / sqrt(3));
        assert_true(m.most <= 2 && m.least >= -2);
    }
}

/* torch.nn.init.dirac_, in groups: one filter for each channel, and others as they would be anyway. */
static void check_dirac(int groups)
{
    struct graph graph = net_graph(wide, false);
    int weight = graph_find_param(&graph, "conv.weight"), filters = 128 / groups, ones = 0;
    graph.params[weight].spec.init = INIT_DIRAC;
    graph.params[weight].spec.init_arg = groups;
    struct device *device = place_open(0);
    struct store store;
    assert_int_equal(store_open(device, &graph, &(struct store_options){.low = F32}, &store), OK);
    assert_int_equal(store_init(&store, 1), OK);
    float *values = memory_new((size_t)128 * 64 * 9, sizeof *values);
    assert_int_equal(store_read(&store, weight, STORE_MASTER, values), OK);
    for (int i = 0; i < 128 * 64 * 9; i++) {
        int k = i / (64 * 9) % filters, c = i / 9 % 64;
        if (k >= 64) assert_true(fabsf(values[i]) <= 1 / sqrtf(64 * 9));
        else assert_true(values[i] == (k == c && i % 9 == 4));
        ones += values[i] == 1;
    }
    assert_int_equal(ones, 64 * groups);
    free(values);
    store_close(&store);
    device_close(device);
    graph_free(&graph);
}

static void test_init_dirac(void **state)
{
    check_dirac(1);
    check_dirac(2);
}

static void test_init_constant(void **state)
{
    struct moments zero = initial_moments(INIT_ZERO, 0), one = initial_moments(INIT_ONE, 0);
    assert_true(zero.least == 0 && zero.most == 0 && one.least == 1 && one.most == 1);
}

static struct store open_mixed(struct device *device, const struct graph *graph, enum dtype low, bool ema,
                               uint64_t seed)
{
    struct store store;
    struct store_options options = {.low = low, .optimizer = optimizer_find("sgd"), .ema = ema};
    assert_int_equal(store_open(device, graph, &options, &store), OK);
    assert_int_equal(store_init(&store, seed), OK);
    return store;
}

/* One seed gives the same bits whatever the number of threads; another seed others. */
static void test_init_repeats(void **state)
{
    struct graph graph = net_graph(wide, false);
    struct device *one, *three;
    one = place_open(1);
    struct store first = open_mixed(one, &graph, F16, true, 5);
    three = place_open(3);
    struct store second = open_mixed(three, &graph, F16, true, 5);
    struct store other = open_mixed(three, &graph, F16, true, 6);
    size_t bytes = (size_t)first.layout.bytes;
    void *a = place_copy(one, first.memory, bytes), *b = place_copy(three, second.memory, bytes);
    void *c = place_copy(three, other.memory, bytes);
    assert_memory_equal(a, b, bytes);
    assert_int_not_equal(memcmp(a, c, bytes), 0);
    free(a);
    free(b);
    free(c);
    store_close(&first);
    store_close(&second);
    store_close(&other);
    device_close(one);
    device_close(three);
    graph_free(&graph);
}

/* The copy that ops read, as fp32 in torch's order, on the heap. */
static float *low_copy(const struct store *store, int param)
{
    int64_t count = shape_count(store->graph->params[param].spec.shape);
    const char *at = (const char *)store->memory + store->layout.params[param].low;
    void *low = place_copy(store->device, at, (size_t)count * dtype_bytes(store->layout.low));
    float *held = memory_new((size_t)count, sizeof *held);
    float *values = memory_new((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) held[i] = (float)dtype_get(store->layout.low, low, i);
    store_to_torch(store, param, held, values);
    free(low);
    free(held);
    return values;
}

/* Parameters that are written are read back, and the copy that ops read follows on refresh. */
static void test_write_and_refresh(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct device *device;
    device = place_open(0);
    struct store store = open_mixed(device, &graph, BF16, false, 1);
    int param = graph_find_param(&graph, "conv2.weight");
    int counter = graph_find_param(&graph, "bn1.num_batches_tracked");
    int64_t count = shape_count(graph.params[param].spec.shape), batches = 41, back;
    float *values = memory_new((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = (float)i + 0.1f;
    assert_int_equal(store_write(&store, param, STORE_MASTER, values), OK);
    assert_int_equal(store_write(&store, counter, STORE_MASTER, &batches), OK);
    assert_int_equal(store_refresh(&store), OK);
    float *low = low_copy(&store, param);
    for (int64_t i = 0; i < count; i++)
        assert_true(low[i] == bf16_to_float(bf16_from_float((float)i + 0.1f)));
    assert_int_equal(store_read(&store, counter, STORE_MASTER, &back), OK);
    assert_int_equal(back, 41);
    assert_true(store_has(&store, param, STORE_SLOT0) && !store_has(&store, param, STORE_AVERAGE));
    free(low);
    free(values);
    store_close(&store);
    device_close(device);
    graph_free(&graph);
}

/* A weight whose code has it as k, r, s, c, of the values 10000 k + 100 c + pixel. A copy in host memory
 * gives the same as the store, and has everything but what ops read. */
static void test_channels_last_and_copy(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    int param = graph_find_param(&graph, "conv2.weight"), mean = graph_find_param(&graph, "bn1.running_mean");
    struct node *node = &graph.nodes[graph.params[param].node];
    struct op_code code = *op_cpu(node->op);
    struct op op = *node->op;
    code.channels_last = true;
    op.cpu = &code;
    node->op = &op;
    struct device *device = place_open(0);
    struct store store = open_mixed(device, &graph, BF16, true, 1), copy;
    struct shape shape = graph.params[param].spec.shape;
    int64_t channels = shape.dim[1], pixels = shape.dim[2] * shape.dim[3], count = shape_count(shape);
    float *values = memory_new((size_t)count, sizeof *values);
    float *back = memory_new((size_t)count, sizeof *back);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = i / (channels * pixels), c = i / pixels % channels;
        values[i] = (float)(10000 * k + 100 * c + i % pixels);
    }
    assert_true(channels > 1 && pixels > 1);
    assert_int_equal(store_write(&store, param, STORE_SLOT0, values), OK);
    assert_true(store_copy(&store, &copy));
    assert_int_equal(store_read(&store, param, STORE_SLOT0, back), OK);
    assert_memory_equal(back, values, (size_t)count * sizeof *values);
    assert_int_equal(store_read(&copy, param, STORE_SLOT0, back), OK);
    assert_memory_equal(back, values, (size_t)count * sizeof *values);
    char *held = place_copy(device, store.memory, (size_t)store.layout.bytes);
    const float *slot = (const float *)(held + store.layout.params[param].slots[0]);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = i / (channels * pixels), q = i / channels % pixels;
        assert_true(slot[i] == (float)(10000 * k + 100 * (i % channels) + q));
    }
    assert_true(store.layout.params[mean].average < store.layout.copies);
    assert_true(store.layout.params[param].low >= store.layout.copies);
    assert_memory_equal(copy.memory, held, (size_t)store.layout.copies);
    assert_memory_equal((char *)copy.memory + store.layout.state, held + store.layout.state,
                        sizeof(struct optimizer_state));
    free(held);
    free(back);
    free(values);
    store_close(&copy);
    store_close(&store);
    device_close(device);
    graph_free(&graph);
}

static void test_swap_average(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct device *device;
    device = place_open(0);
    struct store store = open_mixed(device, &graph, F16, true, 1);
    int param = graph_find_param(&graph, "fc.weight");
    int64_t count = shape_count(graph.params[param].spec.shape);
    float *average = memory_new((size_t)count, sizeof *average);
    float *now = memory_new((size_t)count, sizeof *now);
    for (int64_t i = 0; i < count; i++) average[i] = 0.25f * (float)i;
    assert_int_equal(store_write(&store, param, STORE_AVERAGE, average), OK);
    void *before = place_copy(device, store.memory, (size_t)store.layout.bytes);
    assert_int_equal(store_swap_average(&store), OK);
    assert_int_equal(store_read(&store, param, STORE_MASTER, now), OK);
    assert_memory_equal(now, average, (size_t)count * sizeof *now);
    float *low = low_copy(&store, param);
    for (int64_t i = 0; i < count; i++) assert_true(low[i] == average[i]);
    assert_int_equal(store_swap_average(&store), OK);
    void *after = place_copy(device, store.memory, (size_t)store.layout.bytes);
    assert_memory_equal(before, after, (size_t)store.layout.bytes);
    free(low);
    free(after);
    free(average);
    free(now);
    free(before);
    store_close(&store);
    device_close(device);
    graph_free(&graph);
}

static void test_state(void **state)
{
    struct graph graph = net_graph(net_plain, false);
    struct device *device;
    device = place_open(0);
    struct store store = open_mixed(device, &graph, F32, false, 1);
    struct optimizer_state written, read;
    memset(&written, 0, sizeof written);
    written.step = 17;
    written.scaler.scale = 1024;
    assert_int_equal(store_write_state(&store, &written), OK);
    assert_int_equal(store_read_state(&store, &read), OK);
    assert_memory_equal(&written, &read, sizeof read);
    store_close(&store);
    device_close(device);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),         cmocka_unit_test(test_layout_parts),
        cmocka_unit_test(test_init_normal),    cmocka_unit_test(test_init_uniform),
        cmocka_unit_test(test_init_truncated), cmocka_unit_test(test_init_constant),
        cmocka_unit_test(test_init_dirac),
        cmocka_unit_test(test_init_repeats),   cmocka_unit_test(test_write_and_refresh),
        cmocka_unit_test(test_channels_last_and_copy),
        cmocka_unit_test(test_swap_average),   cmocka_unit_test(test_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
