/* test_fuse_gradient_sums: sums that move into the ops that read them change no result and take instructions
 * away. */
#include <math.h>
#include <stdlib.h>

#include "tests/support/net.h"
#include "tests/support/unit.h"

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

/* The gradients of scaled and of pool1 meet behind bn1; pool1's is the same at all pixels. */
static const char squeezed[] =
    "[input]\n"
    "channels = 3\n"
    "size = 8\n"
    "[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "silu1 = silu bn1\n"
    "pool1 = globalavgpool silu1\n"
    "squeeze = conv pool1 filters=4 kernel=1\n"
    "excite = conv squeeze filters=8 kernel=1\n"
    "factor = sigmoid excite\n"
    "scaled = multiply silu1 factor\n"
    "pool = globalavgpool scaled\n"
    "fc = linear pool units=5\n";

static int count_op(const struct program *program, const char *name)
{
    int count = 0;
    for (int i = 0; i < program->count; i++)
        count += program->instructions[i].op == op_find(name);
    return count;
}

/* Backwards that add a gradient of one pixel an image to a larger one. */
static int count_flat(const struct program *program)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        int addend = operand(at, OPERAND_D_Y_ADDEND, 0), d_y = operand(at, OPERAND_D_Y, 0);
        if (at->op != op_find("batchnorm") || addend < 0) continue;
        count += program->values[addend].shape.h == 1 && program->values[d_y].shape.h == 8;
    }
    return count;
}

/* `sums` and `flat` of a micro-batch, of those that the reference merges: sums of activations' gradients
 * (those of parameters over the micro-batches stay), and summands of which a pixel is left. */
static void merged_is_plain(const char *model, bool reference, int sums, int flat)
{
    struct graph graph = net_graph(model, true);
    struct net_options options = {.batch = 4, .micro_batches = 2, .storage = F32, .training = true,
                                  .reference = reference};
    struct net plain, merged;
    net_open(&plain, &graph, &options);
    options.merged = true;
    net_open(&merged, &graph, &options);
    int gone = count_op(&plain.program, "sum") - count_op(&merged.program, "sum");
    if (reference) assert_int_equal(gone, 2 * sums);
    if (reference) assert_int_equal(count_flat(&merged.program), 2 * flat);
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
    merged_is_plain(residual, true, 2, 0);
    merged_is_plain(squeezed, true, 1, 1);
}

static void test_sums_on_device(void **state)
{
    merged_is_plain(residual, false, 2, 0);
    merged_is_plain(squeezed, false, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_sums_on_device)};
    return cmocka_run_group_tests_name("fuse_gradient_sums", tests, NULL, NULL);
}
