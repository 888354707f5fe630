/* test_program: the programs that lowering and the passes make of small graphs. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/memory/plan.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

static struct program lower_net(const struct graph *graph, int batch, int micro_batches, bool training,
                                enum dtype storage)
{
    struct lower_options options = {.batch = batch, .micro_batches = micro_batches, .training = training,
                                    .storage = storage, .logits = !training};
    struct program program;
    assert_int_equal(lower(graph, &options, &(struct kernel_options){0}, &program), OK);
    return program;
}

/* The instruction called `name` in micro-batch `micro_batch`; NULL when there is none. */
static const struct instruction *find(const struct program *program, const char *name, int micro_batch)
{
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].micro_batch == micro_batch &&
            strcmp(program->instructions[i].name, name) == 0)
            return &program->instructions[i];
    return NULL;
}

static int count_op(const struct program *program, const char *op, enum phase phase)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        count += at->op && at->phase == phase && strcmp(at->op->name, op) == 0;
    }
    return count;
}

/* Every value is written once, before it is read; ids are in range; names are there. */
static void check_form(const struct program *program)
{
    bool *written = memory_new((size_t)program->value_count, sizeof *written);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        assert_non_null(at->name);
        FOR_READS(o, at)
            if (program->values[o->value].home == HOME_ARENA) assert_true(written[o->value]);
        FOR_WRITES(o, at) {
            if (program->values[o->value].home == HOME_ARENA) assert_false(written[o->value]);
            written[o->value] = true;
        }
    }
    free(written);
}

static void test_evaluation(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct program program = lower_net(&graph, 4, 1, false, F32);
    check_form(&program);
    assert_int_equal(program.first_backward, program.count);
    assert_int_equal(program.count, graph.count - 1 + 3);
    assert_true(program.logits >= 0);
    assert_int_equal(program.values[program.logits].bytes, 4 * NET_CLASSES * 4);
    assert_int_equal(program.images_bytes, 4 * 8 * 8 * 3 * 4);
    assert_int_equal(program.targets_bytes, 4 * 4);
    program_free(&program);
    graph_free(&graph);
}

static void test_training(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct program program = lower_net(&graph, 4, 1, true, F32);
    check_form(&program);
    assert_string_equal(program.instructions[program.first_backward].name, "loss backward");
    assert_null(find(&program, "conv1 backward data", 0));
    assert_non_null(find(&program, "conv1 backward params", 0));
    assert_non_null(find(&program, "conv2 backward data", 0));
    assert_null(find(&program, "add backward", 0));
    assert_int_equal(program.logits, -1);
    const struct instruction *update = find(&program, "update", 0);
    assert_non_null(update);
    for (int p = 0; p < graph.param_count; p++) {
        bool trained = graph.params[p].spec.role != ROLE_STATISTIC;
        assert_int_equal(program.gradients[p] >= 0, trained);
        if (trained) assert_true(instruction_reads(update, program.gradients[p]));
    }
    assert_int_equal(count_op(&program, "batchnorm", PHASE_UPDATE), 2);
    assert_true(find(&program, "bn1 update", 0) > update);
    program_free(&program);
    graph_free(&graph);
}

/* relu1 is read by conv2 and the residual, relu2 by two convolutions: one sum each. */
static void test_fan_in(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct program program = lower_net(&graph, 4, 1, true, F32);
    assert_int_equal(count_op(&program, "sum", PHASE_FORWARD), 2);
    const struct instruction *sum = find(&program, "sum of d relu1", 0);
    assert_non_null(sum);
    assert_int_equal(program.values[operand_y(sum)].kind, KIND_GRADIENT);
    const struct instruction *bn2 = find(&program, "bn2 backward", 0);
    const struct instruction *relu2 = find(&program, "relu2 backward", 0);
    int passed = operand(relu2, OPERAND_D_X, 0);
    assert_int_equal(operand(bn2, OPERAND_D_Y, 0), passed);   /* add passes its gradient on ... */
    assert_true(instruction_reads(sum, passed));              /* ... to both inputs */
    program_free(&program);
    graph_free(&graph);
}

/* The sum may take the place of the one of its inputs that dies there. */
static void test_sum_in_place(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct program program = lower_net(&graph, 4, 1, true, F32);
    struct plan plan;
    assert_int_equal(plan_make(&program, true, 1, &plan), OK);
    for (int i = 0; i < program.count; i++) {
        const struct instruction *at = &program.instructions[i];
        if (at->op == build_op("sum"))
            assert_int_equal(plan.offsets[operand_y(at)], plan.offsets[operand_x(at, 0)]);
    }
    plan_free(&plan);
    program_free(&program);
    graph_free(&graph);
}

/* Below the first trained parameter there is no backward at all. */
static void test_frozen(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    for (int p = 0; p < graph.param_count; p++)
        if (strncmp(graph.params[p].name, "conv1.", 6) == 0 || strncmp(graph.params[p].name, "bn", 2) == 0 ||
            strncmp(graph.params[p].name, "conv2.", 6) == 0)
            graph.params[p].frozen = true;
    struct program program = lower_net(&graph, 4, 1, true, F32);
    check_form(&program);
    assert_null(find(&program, "bn1 backward", 0));
    assert_null(find(&program, "relu2 backward", 0));
    assert_null(find(&program, "left backward data", 0));
    assert_non_null(find(&program, "left backward params", 0));
    assert_null(find(&program, "bn1 update", 0));
    assert_int_equal(program.gradients[graph_find_param(&graph, "conv1.weight")], -1);
    program_free(&program);
    graph_free(&graph);
}

/* A frozen batch norm between trained layers passes gradients without giving its own to the update. */
static void test_frozen_norm(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    int weight = graph_find_param(&graph, "bn2.weight"), bias = graph_find_param(&graph, "bn2.bias");
    graph.params[weight].frozen = graph.params[bias].frozen = true;
    struct program program = lower_net(&graph, 4, 1, true, F32);
    check_form(&program);
    assert_non_null(find(&program, "bn2 backward", 0));
    assert_non_null(find(&program, "bn2 update", 0));
    assert_int_equal(program.gradients[weight], -1);
    assert_true(program.gradients[graph_find_param(&graph, "conv1.weight")] >= 0);
    program_free(&program);
    graph_free(&graph);
}

static void test_micro_batches(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct program program = lower_net(&graph, 6, 3, true, F16);
    check_form(&program);
    int params = 0;
    for (int p = 0; p < graph.param_count; p++) params += graph.params[p].spec.role != ROLE_STATISTIC;
    assert_int_equal(count_op(&program, "sum", PHASE_FORWARD), 3 * 2 + 2 * params);
    assert_int_equal(count_op(&program, "batchnorm", PHASE_UPDATE), 2);
    assert_int_equal(count_op(&program, "moments", PHASE_FORWARD), (3 - 1) * 2);
    const struct instruction *conv1 = find(&program, "conv1 forward", 2);
    assert_int_equal(program.values[operand_x(conv1, 0)].offset, 2 * 2 * 8 * 8 * 3 * 2);
    assert_int_equal(program.values[operand_x(conv1, 0)].shape.n, 2);
    const struct instruction *loss = find(&program, "loss", 1);
    assert_int_equal(program.values[operand_x(loss, 1)].offset, 2 * 4);
    assert_int_equal(program.values[operand_y(loss)].offset, program.values[program.loss].offset + 2 * 4);
    assert_true(find(&program, "loss backward", 1)->loss_weight == 1.0f / 3);
    assert_true(find(&program, "conv1 forward", 1) > find(&program, "conv1 backward params", 0));
    int kernel_plan = find(&program, "conv2 forward", 0)->kernel_plan;
    assert_int_equal(find(&program, "conv2 backward data", 2)->kernel_plan, kernel_plan);
    program_free(&program);
    graph_free(&graph);
}

static void test_micro_batches_refused(void **state)
{
    struct graph graph = net_graph(net_plain, false);
    struct lower_options options = {.batch = 7, .micro_batches = 2, .training = true};
    struct program program;
    assert_int_equal(lower(&graph, &options, &(struct kernel_options){0}, &program), USAGE);
    graph_free(&graph);
}

static void test_dtypes(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct program program = lower_net(&graph, 4, 1, true, BF16);
    const struct instruction *conv = find(&program, "conv2 forward", 0);
    const struct instruction *bn = find(&program, "bn2 forward", 0);
    const struct value *values = program.values;
    assert_int_equal(values[operand_x(conv, 0)].dtype, BF16);
    assert_int_equal(values[operand(conv, OPERAND_PARAM, 0)].dtype, BF16);
    assert_true(values[operand(conv, OPERAND_PARAM, 0)].low);
    assert_int_equal(values[operand(bn, OPERAND_PARAM, 0)].dtype, F32);
    assert_false(values[operand(bn, OPERAND_PARAM, 0)].low);
    assert_int_equal(values[operand(bn, OPERAND_SAVED, 0)].dtype, F32);
    assert_int_equal(values[operand_y(bn)].dtype, BF16);
    assert_int_equal(values[program.loss].dtype, F32);
    assert_int_equal(values[program.rank].dtype, I32);
    const struct instruction *back = find(&program, "conv2 backward params", 0);
    assert_int_equal(values[operand(back, OPERAND_D_PARAM, 0)].dtype, F32);
    assert_int_equal(values[operand(find(&program, "conv2 backward data", 0), OPERAND_D_X, 0)].dtype, BF16);
    program_free(&program);
    graph_free(&graph);
}

/* A FULL op in a low-precision run: cast before it, cast after it where a LOW op follows, and the
 * gradients cast back. */
static void test_casts(void **state)
{
    struct graph graph = net_graph(net_plain, false);
    struct op full = *op_find("relu");
    full.precision = CLASS_FULL;
    graph.nodes[graph_find(&graph, "relu1")].op = &full;
    struct program program = lower_net(&graph, 4, 1, true, F16);
    check_form(&program);
    const struct instruction *relu = find(&program, "relu1 forward", 0);
    assert_int_equal(program.values[operand_x(relu, 0)].dtype, F32);
    assert_int_equal(program.values[operand_y(relu)].dtype, F32);
    assert_int_equal(program.values[operand_x(find(&program, "conv2 forward", 0), 0)].dtype, F16);
    /* conv1 to fp32 for relu1, relu1 to fp16 for conv2, and conv2 to fp32 for add, which has mixed
     * inputs; add's fp32 output to fp16 for fc. */
    assert_int_equal(count_op(&program, "cast", PHASE_FORWARD), 4);
    assert_int_equal(count_op(&program, "cast", PHASE_BACKWARD), 4);
    int before = program.count;
    autocast(&program);
    assert_int_equal(program.count, before);
    program_free(&program);
    graph_free(&graph);
}

static void test_streams(void **state)
{
    struct graph graph = net_graph(net_mixed, true);
    struct program program = lower_net(&graph, 4, 2, true, F32);
    assert_int_equal(streams_assign(&program, 2, BY_MICRO_BATCH), OK);
    int aside = 0, waits = 0;
    for (int i = 0; i < program.count; i++) {
        const struct instruction *at = &program.instructions[i];
        if (at->phase == PHASE_BACKWARD_PARAMS) assert_int_equal(at->stream, 1);
        if (at->phase == PHASE_BACKWARD_DATA) assert_int_equal(at->stream, 0);
        aside += at->stream == 1;
        waits += at->wait_count;
    }
    assert_true(aside > 10 && waits > 5);
    assert_true(find(&program, "update", 1)->wait_count > 0);
    struct plan plan;
    assert_int_equal(plan_make(&program, true, 1, &plan), OK);
    plan_free(&plan);
    assert_int_equal(streams_assign(&program, 1, BY_MICRO_BATCH), OK);
    for (int i = 0; i < program.count; i++) assert_int_equal(program.instructions[i].wait_count, 0);
    program_free(&program);
    graph_free(&graph);
}

static bool waits_for(const struct instruction *at, int i)
{
    for (int k = 0; k < at->wait_count; k++)
        if (at->waits[k] == i) return true;
    return false;
}

/* Weight gradients begin when a data gradient has ended, wherever the chain goes on to one. */
static void test_late_weight_gradients(void **state)
{
    struct graph graph = net_graph(net_mixed, true);
    struct program program = lower_net(&graph, 4, 2, true, F32);
    assert_int_equal(streams_assign(&program, 2, BY_MICRO_BATCH), OK);
    int chain = -1, waited = -1, late = 0, products = 0;
    for (int i = 0; i < program.count; i++) {
        const struct instruction *at = &program.instructions[i];
        if (at->stream == 0) chain = i;
        products += at->phase == PHASE_BACKWARD_DATA;
        if (at->phase != PHASE_BACKWARD_PARAMS) continue;
        if (program.instructions[chain].phase == PHASE_BACKWARD_DATA) {
            assert_true(waited == chain || waits_for(at, chain));
            waited = chain;
            late++;
        } else {
            int next = i + 1;
            while (program.instructions[next].phase == PHASE_BACKWARD_PARAMS) next++;
            assert_int_not_equal(program.instructions[next].phase, PHASE_BACKWARD);
            assert_int_not_equal(program.instructions[next].phase, PHASE_BACKWARD_DATA);
        }
    }
    assert_in_range(late, 4, products);
    program_free(&program);
    graph_free(&graph);
}

/* Nodes that do not lead to the output are left out. */
static void test_dead_nodes(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    graph.output = graph_find(&graph, "avg");
    struct program program = lower_net(&graph, 4, 1, true, F32);
    assert_null(find(&program, "fc forward", 0));
    assert_int_equal(program.gradients[graph_find_param(&graph, "fc.weight")], -1);
    program_free(&program);
    graph_free(&graph);
}

static void test_layers(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct program program = lower_net(&graph, 4, 2, true, F32);
    struct plan plan;
    assert_int_equal(plan_make(&program, true, 1, &plan), OK);
    struct plan_layer *rows = memory_new((size_t)graph.count, sizeof *rows);
    int count = plan_layers(&program, &plan, rows);
    assert_int_equal(count, graph.count - 1);
    int64_t params = 0;
    for (int r = 0; r < count; r++) {
        params += rows[r].params;
        int64_t bytes = shape_count(graph.nodes[rows[r].node].shape) * 4 * 4;
        assert_int_equal(rows[r].activation_bytes, bytes);
    }
    assert_int_equal(params, graph_param_elements(&graph));
    free(rows);
    plan_free(&plan);
    program_free(&program);
    graph_free(&graph);
}

/* Each tensor can be counted, and their sum could not. */
static void test_absurd_sums_are_refused(void **state)
{
    struct graph graph;
    struct program program;
    struct model_options images = {.classes = NET_CLASSES, .dropout = -1};
    assert_int_equal(model_load_text(&images, "net",
                                     "[input]\nsize = 40000\nchannels = 1\n[layers]\nbn = batchnorm input\n"
                                     "l1..1500 = silu bn\npool = globalavgpool l1500\n"
                                     "fc = linear pool units=5\n", &graph), OK);
    for (int training = 0; training < 2; training++) {
        struct lower_options options = {.batch = 1 << 20, .micro_batches = 1, .training = training};
        assert_int_equal(lower(&graph, &options, &(struct kernel_options){0}, &program), NO_DEVICE);
    }
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evaluation),     cmocka_unit_test(test_training),
        cmocka_unit_test(test_fan_in),         cmocka_unit_test(test_sum_in_place),
        cmocka_unit_test(test_frozen),         cmocka_unit_test(test_frozen_norm),
        cmocka_unit_test(test_micro_batches),         cmocka_unit_test(test_micro_batches_refused),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_casts),          cmocka_unit_test(test_streams),
        cmocka_unit_test(test_late_weight_gradients),
        cmocka_unit_test(test_dead_nodes),     cmocka_unit_test(test_layers),
        cmocka_unit_test(test_absurd_sums_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
