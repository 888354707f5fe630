/* Micro-batches and layers on streams of their own: every bit is that of one stream, whatever their number,
 * in the program's order and in others that streams and waits allow. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/memory/plan.h"
#include "compile/memory/recompute.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

#define BATCH 24
#define STEPS 2

/* For each instruction, the one before it on its stream; -1. */
static int *before_each(const struct program *program)
{
    int *before = memory_new((size_t)program->count, sizeof *before);
    int *latest = memory_new((size_t)program->streams, sizeof *latest);
    for (int l = 0; l < program->streams; l++) latest[l] = -1;
    for (int i = 0; i < program->count; i++) {
        before[i] = latest[program->instructions[i].stream];
        latest[program->instructions[i].stream] = i;
    }
    free(latest);
    return before;
}

/* True if all that instruction i waits for, its stream included, has a place. */
static bool ready(const struct program *program, const int *before, const int *place, int i)
{
    const struct instruction *at = &program->instructions[i];
    if (place[i] >= 0 || (before[i] >= 0 && place[before[i]] < 0)) return false;
    for (int w = 0; w < at->wait_count; w++)
        if (place[at->waits[w]] < 0) return false;
    return true;
}

/* New places of instructions: any order in which a device with streams may begin them. */
static int *random_places(const struct program *program, uint64_t seed)
{
    struct random random = random_open(seed, PURPOSE_TEST, 0, 0);
    int *place = memory_new((size_t)program->count, sizeof *place);
    int *choices = memory_new((size_t)program->count, sizeof *choices), *before = before_each(program);
    for (int i = 0; i < program->count; i++) place[i] = -1;
    for (int next = 0; next < program->count; next++) {
        int count = 0;
        for (int i = 0; i < program->count; i++)
            if (ready(program, before, place, i)) choices[count++] = i;
        place[choices[random_below(&random, (uint32_t)count)]] = next;
    }
    free(choices);
    free(before);
    return place;
}

/* After planning: the places of values are those for the program's own order. */
static void shuffle(struct program *program, void *context)
{
    int *place = random_places(program, *(const uint64_t *)context);
    struct instruction *to = memory_new((size_t)program->count, sizeof *to);
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        for (int w = 0; w < at->wait_count; w++) at->waits[w] = place[at->waits[w]];
        to[place[i]] = *at;
    }
    free(program->instructions);
    free(place);
    program->instructions = to;
}

static void run_steps(struct net *net)
{
    for (uint64_t step = 1; step <= STEPS; step++) {
        net_batch(net, step);
        assert_int_equal(net_run(net, 0.05), OK);
        assert_int_equal(exec_state(net->exec)->skipped, 0);
    }
}

static void assert_same(const struct net *a, const struct net *b)
{
    int64_t bytes = a->store->layout.bytes;
    void *x = net_store(a, bytes), *y = net_store(b, bytes);
    net_assert_same_gradients(a, b);
    assert_memory_equal(exec_losses(a->exec), exec_losses(b->exec), BATCH * sizeof(float));
    assert_memory_equal(x, y, (size_t)bytes);
    free(x);
    free(y);
}

static void streams_are_one(struct graph *graph, struct net_options options, const struct net *expected)
{
    struct net net;
    net_open(&net, graph, &options);
    run_steps(&net);
    assert_same(&net, expected);
    net_close(&net);
}

/* On one stream, on as many as chains want, and on fewer. A GPU, which makes its own order, and where each
 * program's kernel plans take their time, does the first two. */
static void all_are_one(const char *text, struct net_options options)
{
    static const int counts[] = {16, 6, 4};
    struct graph graph = net_graph(text, true);
    struct net expected;
    uint64_t seed = (uint64_t)options.micro_batches;
    net_open(&expected, &graph, &options);
    run_steps(&expected);
    bool orders = expected.device->backend->kind == DEVICE_CPU;
    options.planned_context = &seed;
    for (int c = 0; c < (orders ? 3 : 1); c++)
        for (options.division = BY_MICRO_BATCH; options.division <= BY_LAYER; options.division++) {
            options.streams = counts[c];
            options.planned = NULL;
            streams_are_one(&graph, options, &expected);
            options.planned = shuffle;
            for (int order = 0; orders && order < 2; order++, seed++)
                streams_are_one(&graph, options, &expected);
        }
    net_close(&expected);
    graph_free(&graph);
}

static void test_streams_are_one(void **state)
{
    static const int counts[] = {1, 2, 3, 4, 8};
    for (int k = 0; k < 5; k++) {
        const struct net_options options = {.batch = BATCH, .micro_batches = counts[k], .training = true,
                                            .merged = k % 2, .ema = true, .storage = k == 3 ? F16 : F32,
                                            .plan_seconds = 0.01};
        all_are_one(net_mixed, options);
    }
}

static int streams_used(const struct program *program)
{
    int used = 0;
    for (int l = 0; l < program->streams; l++) {
        bool any = false;
        for (int i = 0; i < program->count; i++) any = any || program->instructions[i].stream == l;
        used += any;
    }
    return used;
}

/* True if an instruction of one micro-batch's forward waits for nothing of another micro-batch. */
static bool is_free(const struct program *program, int i)
{
    const struct instruction *at = &program->instructions[i];
    for (int w = 0; w < at->wait_count; w++)
        if (program->instructions[at->waits[w]].micro_batch != at->micro_batch) return false;
    return true;
}

/* Chains and weight gradients have streams, and forward of no micro-batch waits for another. */
static void test_micro_batches_have_streams(void **state)
{
    struct graph graph = net_graph(net_plain, true);
    for (int k = 1; k <= 8; k *= 2) {
        struct net net;
        net_open(&net, &graph, &(struct net_options){.batch = BATCH, .micro_batches = k, .training = true,
                                                     .streams = 16});
        assert_int_equal(streams_used(&net.program), 2 * k);
        for (int i = 0; i < net.program.count; i++)
            if (net.program.instructions[i].phase == PHASE_FORWARD && net.program.instructions[i].node >= 0)
                assert_true(is_free(&net.program, i));
        net_close(&net);
    }
    graph_free(&graph);
}

/* All forwards come before the first backward, and each product of weights has a stream. */
static void test_layers_have_streams(void **state)
{
    struct graph graph = net_graph(net_plain, true);
    struct net net;
    net_open(&net, &graph, &(struct net_options){.batch = BATCH, .micro_batches = 4, .training = true,
                                                 .streams = 16, .division = BY_LAYER});
    for (int i = 0; i < net.program.count; i++) {
        const struct instruction *at = &net.program.instructions[i];
        if (at->node >= 0 && at->phase == PHASE_FORWARD) assert_true(i < net.program.first_backward);
        for (int j = 0; j < i && at->node >= 0 && at->phase != PHASE_UPDATE; j++) {
            const struct instruction *other = &net.program.instructions[j];
            if (other->node == at->node && other->phase == at->phase)
                assert_int_equal(other->stream, at->stream);
        }
    }
    assert_true(streams_used(&net.program) > 4);
    net_close(&net);
    graph_free(&graph);
}

static struct compiled compiled_within(const struct graph *graph, int64_t limit, int streams)
{
    const struct compile_options options = {
        .lower = {.batch = BATCH, .micro_batches = 4, .training = true},
        .kernel_plans = {.code_of = kernel_plans_code(DEVICE_CPU)},
        .streams = streams, .budget = {.total = limit, .batches = 1},
    };
    struct compiled compiled;
    assert_int_equal(compile_plan(graph, &options, &compiled), OK);
    return compiled;
}

/* Where all streams do not fit, fewer do, before anything is recomputed. */
static void test_little_memory_has_fewer_streams(void **state)
{
    struct graph graph = net_graph(net_plain, true);
    struct compiled all = compiled_within(&graph, INT64_C(1) << 40, 8);
    struct compiled two = compiled_within(&graph, INT64_C(1) << 40, 2);
    assert_int_equal(all.program.streams, 8);
    assert_int_equal(two.program.streams, 2);
    assert_true(two.plan.arena_bytes < all.plan.arena_bytes);
    const struct program *program = &two.program;
    int64_t beside = program->images_bytes + program->targets_bytes + program->results_bytes;
    struct compiled fits = compiled_within(&graph, beside + two.plan.arena_bytes, 8);
    assert_int_equal(fits.program.streams, 2);
    assert_int_equal(recompute_count(&fits.program), 0);
    assert_true(fits.plan.arena_bytes <= two.plan.arena_bytes);
    compiled_free(&all);
    compiled_free(&two);
    compiled_free(&fits);
    graph_free(&graph);
}

/* Some activations are recomputed by calls of their own, some by backward. */
static void recompute_some(struct program *program, void *context)
{
    enum recompute_mode *modes = memory_new((size_t)program->count, sizeof *modes);
    struct random random = random_open(*(const uint64_t *)context, PURPOSE_TEST, 0, 0);
    for (int i = 0; i < program->count; i++) modes[i] = (enum recompute_mode)random_below(&random, 3);
    recompute(program, modes);
    free(modes);
}

/* Weight gradients run beside the chain if there is memory for that, and change no bit. */
static void test_as_much_beside_as_fits(void **state)
{
    struct graph graph = net_graph(net_mixed, true);
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct net_options options = {.batch = BATCH, .training = true, .storage = F32, .plan_seconds = 0.01,
                                      .pass = recompute_some, .pass_context = &seed};
        struct net expected, net;
        net_open(&expected, &graph, &options);
        run_steps(&expected);
        int64_t all = plan_live_peak(&expected.program);
        options.streams = 2;
        options.planned_context = &seed;
        options.planned = expected.device->backend->kind == DEVICE_CPU ? shuffle : NULL;
        const int64_t limits[] = {1, all / 4, all / 2, INT64_MAX};
        int beside[4] = {0};
        for (int k = 0; k < 4; k++) {
            options.stream_limit = limits[k];
            net_open(&net, &graph, &options);
            for (int i = 0; i < net.program.count; i++) beside[k] += net.program.instructions[i].stream > 0;
            run_steps(&net);
            assert_same(&net, &expected);
            net_close(&net);
        }
        assert_true(beside[0] < beside[3] && beside[1] <= beside[2] && beside[2] <= beside[3]);
        net_close(&expected);
    }
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_are_one),
        cmocka_unit_test(test_micro_batches_have_streams),
        cmocka_unit_test(test_layers_have_streams),
        cmocka_unit_test(test_little_memory_has_fewer_streams),
        cmocka_unit_test(test_as_much_beside_as_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
