/* test_fuse_gradient_sums: sums that move into the ops that read them change no result and take instructions
 * away. */
#include <math.h>
#include <stdlib.h>

#include "net.h"
#include "tests/unit.h"

/* Two paths meet behind each batch norm with its residual, so that its gradient is a sum. */
static const char residual[] =
    "[input]\n"
    "channels = 3\n"
    "size = 8\n"
    "[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu bn1\n"
    "conv2 = conv relu1 filters=8 kernel=3 pad=1 bias=no\n"
    "bn2 = batchnorm conv2\n"
    "add2 = add bn2 relu1\n"
    "relu2 = relu add2\n"
    "conv3 = conv relu2 filters=8 kernel=3 pad=1 bias=no\n"
    "bn3 = batchnorm conv3\n"
    "add3 = add bn3 relu2\n"
    "relu3 = relu add3\n"
    "pool = globalavgpool relu3\n"
    "fc = linear pool units=5\n";

static int count_op(const struct program *program, const char *name)
{
    int count = 0;
    for (int i = 0; i < program->count; i++)
        count += program->instructions[i].op == op_find(name);
    return count;
}

static void merged_is_plain(bool reference)
{
    struct graph graph = net_graph(residual, true);
    struct net_options options = {.batch = 4, .micro_batches = 2, .storage = F32, .training = true,
                                  .reference = reference};
    struct net plain, merged;
    net_open(&plain, &graph, &options);
    options.merged = true;
    net_open(&merged, &graph, &options);
    /* Two sums of activations' gradients a micro-batch; those of parameters over the micro-batches stay. */
    if (reference) assert_int_equal(count_op(&plain.program, "sum") - count_op(&merged.program, "sum"), 4);
    if (reference) assert_true(merged.program.count < plain.program.count);
    struct reason reason = {0};
    if (!plan_verify(&merged.program, exec_plan(merged.exec), &reason)) fail_msg("%s", reason.text);
    assert_int_equal(net_run(&plain, 0.1), OK);
    assert_int_equal(net_run(&merged, 0.1), OK);
    for (int p = 0; p < graph.param_count; p++) {
        float *a = net_gradient(&plain, p), *b = net_gradient(&merged, p);
        for (int64_t i = 0; a && i < shape_count(graph.params[p].spec.shape); i++)
            assert_true(fabsf(a[i] - b[i]) <= 1e-5f * (1 + fabsf(a[i])));
        free(a);
        free(b);
    }
    net_close(&plain);
    net_close(&merged);
    graph_free(&graph);
}

static void test_sums(void **state)
{
    merged_is_plain(true);
}

static void test_sums_on_device(void **state)
{
    merged_is_plain(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_sums_on_device)};
    return cmocka_run_group_tests_name("fuse_gradient_sums", tests, NULL, NULL);
}
