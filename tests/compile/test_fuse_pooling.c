/* test_fuse_pooling: batch norms that write their pooling, too, change no bit of a step. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/memory/recompute.h"
#include "compile/passes.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

/* Two outputs that are pooled and read as they are: of 9x9 pixels, where windows at the edges lack some, and
 * of 5x5, where those are left out. A third is read by its pooling alone, and another window is larger. */
static const char skips[] =
    "[input]\n"
    "channels = 8\n"
    "size = 9\n"
    "[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu bn1\n"
    "pool1 = maxpool relu1 kernel=2 ceil_mode=yes\n"
    "conv2 = conv pool1 filters=16 kernel=3 pad=1 bias=no\n"
    "bn2 = batchnorm conv2\n"
    "relu2 = relu bn2\n"
    "pool2 = maxpool relu2 kernel=2 stride=2\n"
    "conv3 = conv pool2 filters=16 kernel=1 bias=no\n"
    "up3 = conv_transpose conv3 filters=16 kernel=3 stride=2\n"
    "cat3 = concat relu2 up3\n"
    "conv4 = conv cat3 filters=16 kernel=1 bias=no\n"
    "bn4 = batchnorm conv4\n"
    "conv5 = conv relu1 filters=16 kernel=1 stride=2\n"
    "add5 = add bn4 conv5\n"
    "bn5 = batchnorm add5\n"
    "pool5 = maxpool bn5 kernel=3 stride=2 pad=1\n"
    "conv6 = conv bn5 filters=16 kernel=1 stride=2\n"
    "add6 = add pool5 conv6\n"
    "bn6 = batchnorm add6\n"
    "pool6 = maxpool bn6 kernel=2 ceil_mode=yes\n"
    "pool = globalavgpool pool6\n"
    "fc = linear pool units=5\n";
#define MICRO_BATCHES 2
#define FUSED 2

/* Calls of a phase that have the role. */
static int count_with(const struct program *program, enum phase phase, enum operand_role role)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        count += at->op && at->phase == phase && operand(at, role, 0) >= 0;
    }
    return count;
}

static void pooled_is_plain(bool reference, struct net_options options, struct net_pass pass)
{
    struct net_pair pair;
    options.reference = reference;
    pass.name = "fuse_pooling";
    net_pair_open(&pair, skips, &options, pass);
    bool supported = pair.pass.code_of(op_find("batchnorm"))->supports;
    if (!reference && options.storage == F32) supported = false;
    int wanted = supported ? FUSED * MICRO_BATCHES : 0;
    const struct program *pooled = &pair.changed.program;
    assert_int_equal(count_with(&pair.plain.program, PHASE_FORWARD, OPERAND_POOLED), 0);
    assert_int_equal(count_with(pooled, PHASE_FORWARD, OPERAND_POOLED), wanted);
    assert_int_equal(count_with(pooled, PHASE_BACKWARD, OPERAND_NUMBER), wanted);
    net_pair_compare(&pair);
}

static struct net_options options_of(enum dtype storage, int stream_count)
{
    return (struct net_options){.batch = 4, .micro_batches = MICRO_BATCHES, .storage = storage,
                                .training = true, .streams = stream_count, .merged = true};
}

static void test_reference(void **state)
{
    (void)state;
    pooled_is_plain(true, options_of(F16, 1), (struct net_pass){0});
    pooled_is_plain(true, options_of(BF16, 2), (struct net_pass){0});
    pooled_is_plain(true, options_of(F32, 1), (struct net_pass){0});
}

static void test_on_device(void **state)
{
    (void)state;
    pooled_is_plain(false, options_of(BF16, 1), (struct net_pass){0});
    pooled_is_plain(false, options_of(F16, 2), (struct net_pass){0});
    pooled_is_plain(false, options_of(F32, 1), (struct net_pass){0});
}

/* Beside what is made again and what waits on the host. */
static void test_with_others(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct net_pass pass = {.others = true, .seed = seed};
        pooled_is_plain(true, options_of(F16, 1 + (int)seed % 2), pass);
        pooled_is_plain(false, options_of(F16, 2), pass);
    }
}

/* A program that each pass has left valid, of one of so many stages. */
static struct program lowered(const struct graph *graph, int stages, int stage)
{
    const struct compile_options options = {
        .lower = {.batch = 4, .micro_batches = MICRO_BATCHES, .training = true, .storage = F16},
        .cut = {.stages = stages > 1 ? stages : 0, .stage = stage},
        .kernel_plans = {.code_of = net_reference_of}, .verify_each = true,
    };
    struct program program;
    assert_int_equal(passes_lower(graph, &options, &program), OK);
    return program;
}

/* The search for what is made again knows the bytes of both outputs. */
static void test_forecast(void **state)
{
    (void)state;
    struct graph graph = net_graph(skips, false);
    struct program program = lowered(&graph, 1, 0);
    enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct random random = random_open(seed, PURPOSE_TEST, 0, 0);
        struct recompute_forecast forecast;
        for (int i = 0; i < program.count; i++) modes[i] = (enum recompute_mode)random_below(&random, 3);
        recompute_measure(&program, modes, &forecast);
        struct program copy = program_copy(&program);
        recompute(&copy, modes);
        assert_int_equal(plan_live_peak(&copy), forecast.bytes);
        program_free(&copy);
    }
    free(modes);
    program_free(&program);
    graph_free(&graph);
}

/* Wherever stages end, also between a batch norm and its pooling. */
static void test_stages(void **state)
{
    (void)state;
    struct graph graph = net_graph(skips, false);
    int fewest = FUSED * MICRO_BATCHES;
    for (int stages = 1; stages <= 6; stages++) {
        int fused = 0;
        for (int stage = 0; stage < stages; stage++) {
            struct program program = lowered(&graph, stages, stage);
            fused += count_with(&program, PHASE_FORWARD, OPERAND_POOLED);
            program_free(&program);
        }
        assert_true(fused <= FUSED * MICRO_BATCHES && (stages > 1 || fused == FUSED * MICRO_BATCHES));
        if (fused < fewest) fewest = fused;
    }
    assert_true(fewest < FUSED * MICRO_BATCHES);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_on_device),
        cmocka_unit_test(test_with_others),
        cmocka_unit_test(test_forecast),
        cmocka_unit_test(test_stages),
    };
    return cmocka_run_group_tests_name("fuse_pooling", tests, NULL, NULL);
}
